"""What the egress tests run inside a sandbox, where a shell will not do. It speaks by the witness's pipe.

    dial URL…              asks for every URL every 50 ms, each on a connection of its own, for ever
    deaf URL               the same, and ignores TERM
    crowd COUNT HOST PATH  asks so often at once, as soon as it is let out, and waits for the answers
    leave WORD COUNT BATCH HOST PATH
                           asks so often, a batch at a time, and goes without an answer when the file /witness/WORD-0
                           (-1, and so on) shows up
    keep WORD HOST PATH    asks every 50 ms on one connection from when it is let out, and says how that ended
    drain WORD HOST PATH PAUSE
                           downloads, waiting between reads, and says how much came after the end that the file
                           /witness/WORD.end names (milliseconds since the epoch)
    hold WORD KIND HOST PATH
                           asks until it is let out, says "WORD held", then reads to the end and says how it ended;
                           KIND: download, or upload-known and upload-chunked, which begin a body and fall silent
"""
import http.client, os, signal, socket, ssl, sys, threading, time
from urllib.parse import urlsplit

SAID = "/witness/said"
CONTEXT = ssl.create_default_context()


def say(line):
    with open(SAID, "w") as pipe:
        pipe.write(line + "\n")


def opened(host, buffer=0):
    plain = socket.socket()
    if buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    plain.settimeout(5)
    plain.connect((host, 443))
    return CONTEXT.wrap_socket(plain, server_hostname=host)


def get(host, path):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: t\r\n\r\n".encode()


def dial(urls):
    while True:
        for url in urls:
            begun = time.monotonic()
            parts = urlsplit(url)
            try:
                with opened(parts.hostname) as stream:
                    stream.settimeout(5)
                    stream.sendall(get(parts.hostname, parts.path))
                    stream.recv(1000)
            except OSError:
                pass
            time.sleep(max(0, 0.05 - (time.monotonic() - begun)))


def asked(kind, host, path):
    if kind == "download":
        return get(host, path)
    length = "Content-Length: 1000000" if kind == "upload-known" else "Transfer-Encoding: chunked"
    begin = b"x" * 1000 if kind == "upload-known" else b"3e8\r\n" + b"x" * 1000 + b"\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{length}\r\n\r\n".encode() + begin


def admitted(kind, host, path, buffer=0):
    """A stream that was let out, and what has come of its answer so far."""
    while True:
        try:
            stream = opened(host, buffer)
            stream.sendall(asked(kind, host, path))
            # An upload's answer is due when its body has ended, a refusal at once.
            stream.settimeout(5 if kind == "download" else 1)
            head = b""
            try:
                while b"\r\n\r\n" not in head:
                    more = stream.recv(65536)
                    if not more:
                        raise OSError("no answer")
                    head += more
            except TimeoutError:
                if kind != "download":
                    return stream, b""
                raise
            if b" 403 " not in head.split(b"\r\n")[0]:
                return stream, head
        except OSError:
            pass
        time.sleep(0.05)


def hold(word, kind, host, path):
    stream, read = admitted(kind, host, path)
    say(f"{word} held")
    stream.settimeout(None)
    count, last = len(read), read[-8:]
    try:
        while more := stream.recv(65536):
            count, last = count + len(more), (last + more)[-8:]
        how = "whole" if last.endswith(b"0\r\n\r\n") else "short"
    except OSError as error:
        how = type(error).__name__
    say(f"{word} over {count} {how}")


def deaf(url):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dial([url])


def leave(word, count, batch, host, path):
    """So many requests, a batch at a time, whose clients go when the file /witness/WORD-BATCH says that all have arrived,
    and half a second after a head came if one is due."""

    def one(released):
        while True:
            try:
                with opened(host) as stream:
                    stream.sendall(get(host, path))
                    while not os.path.exists(released):
                        time.sleep(0.01)
                    if "quiet" in path:
                        stream.settimeout(None)
                        stream.recv(1000)
                        time.sleep(0.5)
                    return
            except OSError:
                time.sleep(0.05)

    for at in range(int(count) // int(batch)):
        threads = [threading.Thread(target=one, args=(f"/witness/{word}-{at}",)) for _ in range(int(batch))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def crowd(count, host, path):
    let_out = threading.Event()

    def one(scout):
        held = False
        while not held:
            if not scout:
                let_out.wait()
            try:
                with opened(host) as stream:
                    stream.sendall(get(host, path))
                    stream.settimeout(1)
                    try:
                        stream.recv(1000)
                    except TimeoutError:
                        # A refusal comes at once.
                        held = True
                        let_out.set()
                        stream.settimeout(None)
                        stream.recv(1000)
            except OSError:
                pass
            time.sleep(0.1)

    # One asks until it is let out; then all the others do.
    threads = [threading.Thread(target=one, args=(at == 0,)) for at in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def keep(word, host, path):
    kept, count = None, 0
    while True:
        try:
            if kept is None:
                kept = http.client.HTTPSConnection(host, timeout=5, context=CONTEXT)
                kept.connect()
                kept.auto_open = False
            kept.request("GET", path)
            answer = kept.getresponse()
            answer.read()
            how = str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            how = type(error).__name__
            if count == 0:
                kept = None
        if how == "200":
            count += 1
            if count == 1:
                say(f"{word} held")
        elif count > 0:
            return say(f"{word} over {count} {how}")
        time.sleep(0.05)


def drain(word, host, path, pause, after, buffer):
    stream, read = admitted("download", host, path, int(buffer))
    stream.settimeout(None)
    came, end, total, held = [], f"/witness/{word}.end", 0, False
    try:
        while more := stream.recv(65536):
            came.append((time.time() * 1000, len(more)))
            total += len(more)
            if total >= int(after) and not held:
                say(f"{word} held")
                held = True
            # Slow from then on until the end; then it takes all there is.
            if held and float(pause) and not os.path.exists(end):
                time.sleep(float(pause))
    except OSError:
        pass
    while not os.path.exists(end):
        time.sleep(0.01)
    at = float(open(end).read())
    say(f"{word} over {sum(n for _, n in came)} {sum(n for t, n in came if t > at)}")


command, *arguments = sys.argv[1:]
commands = {"dial": lambda *urls: dial(urls), "deaf": deaf, "hold": hold, "crowd": crowd, "leave": leave, "keep": keep, "drain": drain}
commands[command](*arguments)
