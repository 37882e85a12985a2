"""The first program in the sandbox: it makes a listener there, hands it out, and becomes the agent.

Started as a script (`python -I -S inside.py FD PORT COMMAND…`), since nothing of this package is to be seen in there. The sandbox has a
network of its own in which there is nothing but loopback; whoever holds the listener is on the other side of it. It goes out over a socket
that is closed before the agent begins.
"""

import array
import os
import socket
import sys


def main() -> None:
    """Hand out the listener, and become the command. Ends with 127 where there is no such program."""
    descriptor, port, *command = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    with listener, socket.socket(fileno=int(descriptor)) as way_out:
        rights = array.array("i", [listener.fileno()])
        way_out.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell would read what is meant for the agent
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
