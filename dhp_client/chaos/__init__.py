"""`dhp chaos`: a private daemon and its workers are hurt in every way that can be done from outside, and nothing is lost.

Owns a folder, a daemon, workers, the network between them, and the books from which a judge says what is so. Uses the
client as any program would, and starts the daemon as anybody would: nothing here is known to either.
"""
