"""The gRPC service of a controller, and its client."""
