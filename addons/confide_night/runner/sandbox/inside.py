"""The first program in the sandbox: creates a listener, passes it to the gateway, and replaces
itself by the agent.

It runs as a script (`python -I -S inside.py FD PORT COMMAND…`), since the sandbox does not contain
this package. The sandbox's network has only loopback; the process with the listener is outside. The
listener is passed over a socket that is closed before the agent starts.
"""

import array
import os
import socket
import sys


def main() -> None:
    """Create the listener, pass it on, and execute the command. Exits with 127 if the program does
    not exist.
    """
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
