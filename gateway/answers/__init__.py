"""From the router's events to the API's answers: events become chunks, and a whole answer is its chunks, joined."""
