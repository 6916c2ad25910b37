"""What was found: pure functions over a task and its trials. Knows neither stores nor searchers nor backends."""
