"""Export a trained model in forms for servers and search engines, measure them, and upload it."""
