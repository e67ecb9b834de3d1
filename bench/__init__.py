"""The load generator: sends requests to an OpenAI-compatible server and reports what a client sees."""
