"""What others reach over HTTP: web hooks, the operator's API, event streams, health and the chat page."""
