# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark. Each is a function that measures and returns Markdown; `bench/run --list` prints the first
line of its documentation. ROWS at the end is the order in which they run.
"""

import json
import statistics
import urllib.request

from . import embed, ensemble, extensions, forest, grpc, loading, metrics, micro, mlserver, openvino, ort, others, python, repository, requests, rest, tensorflow, tensorrt, torch, wrk
from .measure import Cell, ratio, say
from .report import cpu, figure, met, table


def _against_nginx(lab, request, connections, goal):
    """Conch and nginx with the same bytes: a table of CPU per request."""
    conch, nginx = lab.conch(), lab.nginx()
    rows = []
    for n in connections:
        a, b = Cell(conch, request, n), Cell(nginx, request, n)
        lab.bench.turns([a, b])
        costs = ratio(a, b)
        rows.append([n, cpu(a), cpu(b), costs, f"≤ {goal:.2f}", met(costs.median <= goal),
                     f"{figure(a.p50_us)} / {figure(a.p99_us)}", f"{figure(b.p50_us)} / {figure(b.p99_us)}",
                     figure(a.per_second), figure(b.per_second)])
    return table(
        ["connections", "Conch CPU µs", "nginx CPU µs", "ratio", "goal", "met", "Conch p50 / p99 µs",
         "nginx p50 / p99 µs", "Conch requests/s", "nginx requests/s"], rows)


def small(lab):
    """identity of 64 bytes, binary, against nginx `return 200` for the same POST"""
    return _against_nginx(lab, requests.small(), [16, 64], 0.95)


def health(lab):
    """GET /v2/health/ready against nginx `return 200`"""
    return _against_nginx(lab, requests.get("/v2/health/ready"), [16, 64], 1.00)


def sink(lab):
    """602 kB in, 4 bytes out, against nginx discarding the same body"""
    return _against_nginx(lab, requests.sink(), [1, 8], 1.00)


def pipelined(lab):
    """identity of 64 bytes with 8 requests outstanding per connection, against nginx"""
    conch, nginx = lab.conch(), lab.nginx()
    request = requests.small()
    a, b = (Cell(server, request, 16, pipeline=8) for server in (conch, nginx))
    lab.bench.measure([a, b])
    return table(["connections × depth", "Conch CPU µs", "nginx CPU µs", "ratio"],
                 [["16 × 8", cpu(a), cpu(b), f"{a.cpu_us / b.cpu_us:.2f}"]])


def _against_triton(lab, request, goal, seconds=0.0):
    """Conch and the genuine Triton: a table. nginx, which answers with the same bytes from two workers and runs no model,
    shows the floor: the cost of the connection itself, with wake-ups if there is one connection.
    """
    servers = (lab.conch(), lab.triton(), lab.nginx())
    threes = [[Cell(server, request, n, seconds=seconds) for server in servers] for n in (1, 16, 64)]
    lab.bench.measure([cell for three in threes for cell in three])
    rows = []
    for a, b, floor in threes:
        times = b.cpu_us / a.cpu_us
        latency = a.p50_us < b.p50_us and a.p99_us < b.p99_us
        rows.append([a.connections, cpu(a), cpu(b), cpu(floor), f"{times:.1f} ×", f"≥ {goal} ×",
                     met(times >= goal), figure(a.p50_us), figure(b.p50_us), figure(a.p99_us),
                     figure(b.p99_us), met(latency)])
    return table(["connections", "Conch CPU µs", "Triton CPU µs", "nginx CPU µs", "less", "goal", "met",
                  "Conch p50 µs", "Triton p50 µs", "Conch p99 µs", "Triton p99 µs",
                  "both lower"], rows)


# Of a hash; XXH3 is to have 10 GB/s.
HASH_GB_PER_S = 10


def cache_http(lab):
    """hits of the response cache over HTTP, against the same model without it, in the same server: 64 bytes, and 602 kB; misses of 64 bytes; the genuine Triton's"""
    conch, rows = lab.conch_cached(), []
    try:
        triton = lab.triton_cached()
    except servers.Missing as missing:
        say(f"  left out: {missing}")
        triton = None

    def fresh(model="small"):
        return requests.fresh(requests.small(model))
    for what, request, name, n, goal in (("hit", requests.small, "small", 16, 0.5),
                                         ("hit", requests.image, "image", 8, 0.5 + 602112 / HASH_GB_PER_S / 1e3),
                                         ("misses only", fresh, "small", 16, None)):
        pairs = [[Cell(server, request(f"{name}_cached"), n), Cell(server, request(), n)] for server in (conch, triton) if server]
        lab.bench.turns([cell for pair in pairs for cell in pair])
        added = [statistics.median(x["cpu_us"] - y["cpu_us"] for x, y in zip(a.samples, b.samples)) for a, b in pairs]
        (a, b), theirs = pairs[0], pairs[1] if triton else None
        limit = goal if goal else 0.03 * b.cpu_us
        rows.append([what, b.request.name, n, cpu(a), cpu(b), f"{added[0]:.2f}", f"{added[0] / b.cpu_us:.1%}", f"≤ {limit:.1f}" if goal else "≤ 3 %",
                     met(added[0] <= limit), *([cpu(theirs[0]), cpu(theirs[1]), f"{added[1]:.2f}"] if theirs else 3 * ["–"])])
    return table(["what", "request", "connections", "Conch with the cache CPU µs", "without", "added µs", "of it", "goal", "met",
                  "Triton with the cache CPU µs", "without", "added µs"], rows)


def triton_small(lab):
    """identity of 64 bytes, binary, the same backend in the genuine Triton"""
    return _against_triton(lab, requests.small(), 4)


def triton_image(lab):
    """identity of 602 kB, binary both ways, the same backend in the genuine Triton"""
    return _against_triton(lab, requests.image(), 4)


def triton_json(lab):
    """identity of 602 kB as JSON both ways, the same backend in the genuine Triton"""
    # Triton answers 40 of these in a second: a cell needs time for its p99.
    seconds = 2 * lab.settings.seconds
    tables = [f"{request.name}:\n\n" + _against_triton(lab, request, goal, seconds=seconds)
              for request, goal in ((requests.image_json(), 16), (requests.image_json_shortest(), 20))]
    return "\n\n".join(tables)


def packed(lab):
    """602 kB as gzip both ways, against libdeflate alone and the genuine Triton"""
    request = requests.packed(requests.image())
    rows, alone = [], []
    threes = [[Cell(lab.conch(), request, n), Cell(lab.triton(), request, n), Cell(lab.conch(), requests.image(), n)] for n in (1, 4)]
    for _ in range(lab.settings.rounds):
        alone.append(micro.compress_loop(lab, request.body))
        say(f"  libdeflate alone {alone[-1]:.0f} us")
        for cell in (cell for three in threes for cell in three):
            lab.bench.sample(cell)
    bare = statistics.median(alone)
    for a, b, plain in threes:
        above, both, times = a.cpu_us / bare - 1, a.cpu_us / (bare + plain.cpu_us) - 1, b.cpu_us / a.cpu_us
        rows.append([a.connections, cpu(a), figure(bare), f"{above * 100:+.1f} %", "≤ 5 %", met(above <= 0.05), cpu(plain),
                     f"{both * 100:+.1f} %", cpu(b), f"{times:.1f} ×", "≥ 2 ×", met(times >= 2), figure(a.p50_us), figure(b.p50_us)])
    return table(["connections", "Conch CPU µs", "libdeflate alone CPU µs", "above it", "goal", "met", "the same unpacked CPU µs",
                  "above both", "Triton CPU µs", "less", "goal", "met", "Conch p50 µs", "Triton p50 µs"], rows)


def classes(lab):
    """the best 5 of 1 000 numbers, against the numbers themselves"""
    pairs = [[Cell(lab.conch(), request, n) for request in (requests.scores(5), requests.scores())] for n in (16, 64)]
    lab.bench.measure([cell for pair in pairs for cell in pair])
    rows = []
    for a, b in pairs:
        more = a.cpu_us - b.cpu_us
        rows.append([a.connections, cpu(a), cpu(b), f"{more:+.2f}", "≤ 3", met(more <= 3)])
    return table(["connections", "best 5 CPU µs", "all CPU µs", "more µs", "goal", "met"], rows)


def _batch_size(server, model):
    """The mean number of requests per execution."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v2/models/{model}/stats", timeout=20) as answer:
        stats = json.load(answer)["model_stats"][0]
    return stats["inference_count"], stats["execution_count"]


def _sample_batches(lab, cell):
    before = _batch_size(cell.server, cell.request.model)
    lab.bench.sample(cell)
    after = _batch_size(cell.server, cell.request.model)
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def batching(lab):
    """the dynamic batcher against the genuine Triton's: its price, and how well batches are filled"""
    rows = []
    for model, connections in (("batched", (1, 16, 64)), ("batched_slow", (16, 64)), ("batched_limited", (64,))):
        request = requests.batched(model)
        ideal = repository.SLOW_BATCH * 1000 / repository.SLOW_MS if model != "batched" else None
        for n in connections:
            pair = [Cell(server, request, n) for server in (lab.conch(), lab.triton())]
            sizes = [[], []]
            for _ in range(lab.settings.rounds):
                for cell, seen in zip(pair, sizes):
                    seen.append(_sample_batches(lab, cell))
            a, b = pair
            goal = n > 1 and not ideal
            times = b.cpu_us / a.cpu_us
            rows.append([model, n, cpu(a), cpu(b), f"{times:.1f} ×", "≥ 4 ×" if goal else "–",
                         met(times >= 4) if goal else "–", figure(a.per_second), figure(b.per_second),
                         figure(ideal) if ideal else "–",
                         *(f"{statistics.median(seen):.1f}" for seen in sizes),
                         figure(a.p50_us), figure(b.p50_us), figure(a.p99_us), figure(b.p99_us)])
    return table(["model", "connections", "Conch CPU µs", "Triton CPU µs", "less", "goal", "met",
                  "Conch requests/s", "Triton requests/s", "ideal", "Conch batch", "Triton batch",
                  "Conch p50 µs", "Triton p50 µs", "Conch p99 µs", "Triton p99 µs"], rows)


def digits(lab):
    """the ONNX model of examples/digits: what the server adds to a bare Run and a request to identity"""
    request = requests.binary("digits", "digits", {"image": ([1, 64], [0.0] * 64)}, ["scores"], None)
    conch = lab.conch_examples()
    cells = [Cell(conch, request, n) for n in (1, 16, 64)]
    plain = [Cell(lab.conch(), requests.small(), n) for n in (1, 16, 64)]
    bare = []
    for _ in range(lab.settings.rounds):
        bare.append(micro.ort_loop(lab, "digits", ("image", "1x64"), ("scores", "1x10")))
        say(f"  bare Run {bare[-1]:.2f} us")
        for cell in cells + plain:
            lab.bench.sample(cell)
    run_us = statistics.median(bare)
    rows = []
    for cell, same in zip(cells, plain):
        beyond = cell.cpu_us - run_us - same.cpu_us
        # One connection leaves the core idle between requests, so its figures include the wake-ups.
        goal = cell.connections > 1
        rows.append([cell.connections, cpu(cell), figure(run_us), cpu(same), f"{beyond:.2f}",
                     "≤ 1.5" if goal else "–", met(beyond <= 1.5) if goal else "–", figure(cell.p50_us), figure(cell.p99_us)])
    return table(["connections", "digits CPU µs", "bare Run CPU µs", "identity of 64 B CPU µs", "added beyond both µs", "goal", "met",
                  "p50 µs", "p99 µs"], rows)


def memory(lab):
    """resident memory of the idle server without models"""
    rows = []
    for make, goal in ((lab.conch_empty, 20), (lab.triton_empty, None)):
        server = lab.optional(make)
        if not server:
            continue
        rss = server.memory_kb("VmRSS") / 1024
        rows.append([server.name, figure(rss), figure(server.memory_kb("RssAnon") / 1024),
                     f"≤ {goal}" if goal else "–", met(rss <= goal) if goal else "–"])
        server.stop()
    return table(["server", "RSS MB", "of it anonymous MB", "goal", "met"], rows)


def mallocs(lab):
    """calls of malloc and its kin per request in steady state, 16 connections"""
    rows = []

    def count(conch, name, request, openssls=0):
        per_request = micro.count_mallocs(lab, conch, request)
        # A call now and then (a pool that grows once) is not one per request.
        rows.append([name, conch.name, f"{per_request:.3f}", f"{openssls:g}", met(per_request < 1.1 * openssls + 0.01)])

    conch = lab.conch_counted()
    for request in (requests.get("/v2/health/ready"), requests.small(), requests.sink(),
                    requests.image(), requests.image_json(), requests.packed(requests.image()),
                    requests.scores(5), requests.generate(), requests.events(1000)):
        count(conch, request.name, request)
    conch.stop()
    with extensions.made_regions() as made:
        by_regions = lab.conch_regions_counted()
        made.register(by_regions)
        count(by_regions, "602 kB by regions", made.request())
        by_regions.stop()
    secure = lab.conch_tls(counted=True)
    for request in (requests.small(), requests.image()):
        # An answer is about as long as its request. OpenSSL allocates for each record, of which not all are full.
        openssls = micro.openssl_mallocs(lab, len(request.wire), len(request.wire))
        count(secure, f"{request.name}, TLS", request, openssls)
    secure.stop()
    triton = lab.optional(lab.triton_counted)
    if triton:
        request = requests.small()
        rows.append([request.name, triton.name,
                     f"{micro.count_mallocs(lab, triton, request):.3f}", "–", "–"])
        triton.stop()
    return table(["request", "server", "calls per request", "goal", "met"], rows)


def abi(lab):
    """a request of 64 bytes through the plugin ABI alone: the backend identity, executed inline, no network"""
    said = micro.abi(lab)
    us, whole_us = said["execute_ns"] / 1000, said["infer_ns"] / 1000
    per_request = said["allocated_bytes"] / said["requests"]
    return table(["from execute to response µs", "goal", "met", "whole request µs", "bytes from malloc per request",
                  "goal", "met"],
                 [[f"{us:.3f}", "≤ 0.500", met(us <= 0.5), f"{whole_us:.3f}", f"{per_request:.3f}", "0",
                   met(per_request < 0.01)]])


def json_floats(lab):
    """FP32 tensors of JSON text into memory, against yyjson building its DOM of the same text"""
    rows = []
    for text in micro.json_floats(lab):
        times = text["yyjson_us"] / text["conch_us"]
        rows.append([text["text"], text["bytes"], text["values"],
                     figure(text["conch_us"]), figure(text["yyjson_us"]), f"{times:.2f} ×", "≥ 1.00 ×",
                     met(times >= 1)])
    return table(["text", "bytes", "values", "Conch µs", "yyjson µs", "faster", "goal", "met"], rows)


def cross_check(lab):
    """rows small and health again, driven by wrk instead of our own client"""
    rows = []
    for request in (requests.small(), requests.get("/v2/health/ready")):
        for connections in (16, 64):
            pair = wrk.measure(lab, [lab.conch(), lab.nginx()], request, connections)
            rows.append([request.name, connections, *(figure(us) for us in pair),
                         f"{pair[0] / pair[1]:.2f}"])
    return table(["request", "connections", "Conch CPU µs", "nginx CPU µs", "ratio"], rows)


ROWS = {
    "small": small,
    "health": health,
    "sink": sink,
    "pipelined": pipelined,
    "triton-small": triton_small,
    "triton-image": triton_image,
    "triton-json": triton_json,
    "packed": packed,
    "classes": classes,
    "generate": extensions.generate,
    "events": extensions.events,
    "regions": extensions.regions,
    "traces": extensions.traces,
    "histograms": extensions.histograms,
    "spans": extensions.spans,
    "http-tls": extensions.tls,
    "idle": extensions.idle,
    "batching": batching,
    "digits": digits,
    "ort": ort.ort,
    "tensorrt": tensorrt.tensorrt,
    "forest": forest.forest,
    "openvino": openvino.openvino,
    "tensorflow": tensorflow.tensorflow,
    "torch": torch.torch,
    "aoti": torch.aoti,
    "rest": rest.rest,
    "mlserver": mlserver.mlserver,
    "memory": memory,
    "metrics": metrics.metrics,
    "mallocs": mallocs,
    "abi": abi,
    "embed": embed.embed,
    "limiter": embed.limiter,
    "cache": embed.cache,
    "cache_http": cache_http,
    "decoupled": embed.decoupled,
    "ensemble": ensemble.ensemble,
    "cores": embed.cores,
    "others": others.others,
    "grpc-small": grpc.small,
    "grpc-stream": grpc.stream,
    "grpc-image": grpc.image,
    "grpc-mallocs": grpc.mallocs,
    "grpc-tls": grpc.tls,
    "grpc-loops": grpc.loops,
    "grpc-memory": grpc.memory,
    "python-small": python.small,
    "python-image": python.image,
    "python-work": python.work,
    "python-many": python.many,
    "python-start": python.start,
    "json": json_floats,
    "wrk": cross_check,
    "start": loading.start,
    "models": loading.models,
    "load": loading.load,
    "config": loading.config,
}
