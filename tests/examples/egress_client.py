"""Measures requests and prints one JSON object. BASE is https://HOST or http://ADDRESS:PORT.

    BASE latency kept|new ROUNDS WARM_UP
    BASE download PATH BYTES
    BASE crowd COUNT
"""
import concurrent.futures, http.client, json, sys, time
from urllib.parse import urlsplit

base = urlsplit(sys.argv[1])


def connection():
    kind = http.client.HTTPSConnection if base.scheme == "https" else http.client.HTTPConnection
    made = kind(base.netloc, timeout=60)
    made.connect()
    return made


def request(made, path="/small"):
    made.request("GET", path, headers={"Accept-Encoding": "identity"})
    answer = made.getresponse()
    body = answer.read()
    assert answer.status == 200, (answer.status, body)


def timed(work):
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def quantiles(values):
    values.sort()
    return {"p50": values[len(values) // 2], "p99": values[(len(values) - 1) * 99 // 100]}


def latency(kind, rounds, warm_up):
    made = connection()

    def one():
        if kind == "kept":
            request(made)
        else:
            request(connection())

    return quantiles([timed(one) for _ in range(int(warm_up) + int(rounds))][int(warm_up):])


def download(path, length):
    made = connection()
    made.request("GET", path)
    answer = made.getresponse()
    count, buffer = 0, memoryview(bytearray(1 << 20))
    begun = time.perf_counter()
    while got := answer.readinto(buffer):
        count += got
    took = time.perf_counter() - begun
    assert count == int(length), count
    return {"mbs": count / 1e6 / took}


def crowd(count):
    with concurrent.futures.ThreadPoolExecutor(int(count)) as pool:
        made = [connection() for _ in range(int(count))]
        begun = time.perf_counter()
        each = list(pool.map(lambda one: timed(lambda: request(one)), made))
        return quantiles(each) | {"all": (time.perf_counter() - begun) * 1e3}


task, *arguments = sys.argv[2:]
print(json.dumps({"latency": latency, "download": download, "crowd": crowd}[task](*arguments)))
