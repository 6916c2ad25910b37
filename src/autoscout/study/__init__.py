"""One study: the loop, its campaign, where it starts, how it is put together and what it publishes."""
