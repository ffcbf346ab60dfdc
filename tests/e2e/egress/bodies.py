"""Sends bodies of every framing, whole and broken off, each on a connection of its own, and prints for each its name and
the status of its answer, or how it ended."""
import socket, ssl, sys, time

CONTEXT = ssl.create_default_context()
WORD, OVER = sys.argv[1], int(sys.argv[2])
CHUNKED = "Transfer-Encoding: chunked"
ENDS, BREAKS = True, False
CASES = [
    ("chunked", CHUNKED, b"5\r\nhello\r\n0\r\n\r\n", ENDS),
    ("declared", "Content-Length: 5", b"hello", ENDS),
    ("chunked-broken", CHUNKED, b"5\r\nhello\r\n", BREAKS),
    ("chunked-broken-within", CHUNKED, b"8000\r\n" + b"x" * 20000, BREAKS),
    ("declared-broken", "Content-Length: 10", b"hello", BREAKS),
    ("chunk-extension", CHUNKED, b"5;a=b\r\nhello\r\n0\r\n\r\n", ENDS),
    ("chunk-size-bad", CHUNKED, b"0x5\r\nhello\r\n0\r\n\r\n", ENDS),
    ("both-more", "Content-Length: 5\r\n" + CHUNKED, b"14\r\n" + b"x" * 20 + b"\r\n0\r\n\r\n", ENDS),
    ("both-less", CHUNKED + "\r\nContent-Length: 20", b"5\r\nhello\r\n0\r\n\r\n", ENDS),
    ("chunked-over", CHUNKED, b"%x\r\n" % OVER + b"x" * OVER + b"\r\n0\r\n\r\n", ENDS),
]


def sent(name, framing, body, ends):
    head = f"POST /o/{WORD}-{name}/git-upload-pack HTTP/1.1\r\nHost: github.com\r\n{framing}\r\n\r\n".encode()
    answer = b""
    try:
        plain = socket.create_connection(("github.com", 443), 10)
        with CONTEXT.wrap_socket(plain, server_hostname="github.com") as stream:
            stream.settimeout(10)
            stream.sendall(head + body)
            if not ends:
                time.sleep(0.5)
                return "broken-off"
            answer = stream.recv(65536)
    except OSError as error:
        return type(error).__name__
    return answer.split(b" ")[1].decode() if answer else "closed"


for case in CASES:
    print(case[0], sent(*case), flush=True)
