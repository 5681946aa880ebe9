"""Copies bytes between standard input, which is a socket, and a daemon's address: `relay.py ADDRESS`.

Run as a process of its own by `worker_process`. Imports nothing of ours, so that it starts fast.
"""

import select
import socket
import sys


def main(address: str) -> None:
    near = socket.socket(fileno=0)
    if address.startswith("unix:"):
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        far.connect(address.removeprefix("unix:"))
    else:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        far = socket.create_connection((host.strip("[]"), int(port)))
    other = {near: far, far: near}
    while True:
        readable, _, _ = select.select([near, far], [], [])
        for source in readable:
            data = source.recv(65_536)
            if not data:
                return
            other[source].sendall(data)


if __name__ == "__main__":
    main(sys.argv[1])
