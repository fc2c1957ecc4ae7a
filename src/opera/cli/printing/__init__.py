"""What the commands print. Corpus text is printed as it is, never as markup."""
