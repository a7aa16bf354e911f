"""Publishing: check a folder, write its card, and push it to the Hub in one commit."""
