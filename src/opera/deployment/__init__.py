"""A trained model in the forms that servers and search engines read, each measured again."""
