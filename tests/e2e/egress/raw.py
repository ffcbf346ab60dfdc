"""Sends the requests of a JSON file byte for byte, each over TLS on a connection of its own, and prints for each its
name and the status of every answer, or how the connection ended."""
import concurrent.futures, json, re, socket, ssl, sys

# Its names are what is under test here; that they are checked is tested elsewhere.
CONTEXT = ssl.create_default_context()
CONTEXT.check_hostname = False
CONTEXT.verify_mode = ssl.CERT_NONE


def said(case):
    raw = case["text"].encode().replace(b"\n", b"\r\n")
    answer = b""
    try:
        plain = socket.create_connection((case["sni"] or "192.0.2.1", 443), 10)
        with CONTEXT.wrap_socket(plain, server_hostname=case["sni"]) as stream:
            stream.settimeout(10)
            stream.sendall(raw)
            # An answer to a kept connection leaves it open; nothing more is due a while after.
            while more := stream.recv(65536):
                answer += more
                stream.settimeout(2)
    except OSError as error:
        if not answer:
            return type(error).__name__
    return " ".join(re.findall(r"HTTP/1\.1 (\d+)", answer.decode("latin-1"))) or "closed"


cases = json.load(open(sys.argv[1]))
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    for case, line in zip(cases, pool.map(said, cases)):
        print(case["name"], line)
