"""Measures requests and prints one JSON object. BASE is https://HOST or http://ADDRESS:PORT.

    BASE latency kept|new ROUNDS WARM_UP
    BASE crowd COUNT
"""
import concurrent.futures, http.client, json, ssl, sys, time
from urllib.parse import urlsplit

base = urlsplit(sys.argv[1])


# Read once: the system's certificates take a client longer than a request.
trusted = ssl.create_default_context()


def connection():
    if base.scheme == "https":
        made = http.client.HTTPSConnection(base.netloc, timeout=60, context=trusted)
    else:
        made = http.client.HTTPConnection(base.netloc, timeout=60)
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


def crowd(count):
    with concurrent.futures.ThreadPoolExecutor(int(count)) as pool:
        made = [connection() for _ in range(int(count))]
        begun = time.perf_counter()
        each = list(pool.map(lambda one: timed(lambda: request(one)), made))
        return quantiles(each) | {"all": (time.perf_counter() - begun) * 1e3}


task, *arguments = sys.argv[2:]
print(json.dumps({"latency": latency, "crowd": crowd}[task](*arguments)))
