"""Publishing: check a folder, write its card, and push it to the Hub in one commit.

What is published is made elsewhere; here it is checked, described and sent.
"""
