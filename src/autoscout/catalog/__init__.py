"""What is known of GPUs and models: nominal rates and shapes."""
