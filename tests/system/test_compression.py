# SPDX-License-Identifier: Apache-2.0
"""Packed bodies and replies over HTTP: by hand, by Triton's clients and by curl. Both servers answer the same, except where
docs/compatibility.md says so."""

import asyncio
import gzip
import json
import os
import re
import struct
import subprocess
import time
import zlib

import numpy as np
import pytest
import tritonclient.http as client
import tritonclient.http.aio as aio

import repository
import server as servers
import triton
from wire import Connection, ask, request_bytes

LIMIT = 4 << 20
LARGE = 600 * 1000  # bytes of a tensor that helper threads pack
PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACKERS = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}


def write_models(models):
    repository.write_identity(models, "echo", [("FP32", [-1])])
    repository.write_identity(models, "strings", [("BYTES", [-1])])
    repository.write_identity(models, "pair", [("FP32", [-1]), ("INT32", [-1])])
    return models


@pytest.fixture(scope="module")
def models_of_all(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def conch(models_of_all):
    with servers.Server(models_of_all, flags=[f"--http-max-input-size={LIMIT}"]) as made:
        yield made


@pytest.fixture(scope="module", params=["conch", "triton"])
def served(request, models_of_all):
    if request.param == "conch":
        yield request.getfixturevalue("conch")
        return
    if triton.missing():
        pytest.skip(triton.missing())
    with triton.Triton(models_of_all) as made:
        yield made


def json_body(values, model_output=()):
    document = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    if model_output:
        document["outputs"] = list(model_output)
    return json.dumps(document).encode()


def binary_body(values):
    """(JSON, JSON and tensor) of a request for the model echo."""
    tail = np.asarray(values, np.float32).tobytes()
    head = json.dumps({
        "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "parameters": {"binary_data_size": len(tail)}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }).encode()
    return head, head + tail


def post(server, body, model="echo", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    return ask(server, "POST", f"/v2/models/{model}/infer", body, named)


def unpacked(answer):
    return UNPACKERS[answer.headers.get("content-encoding")](answer.body)


@pytest.mark.parametrize("count", [3, LARGE // 4])
@pytest.mark.parametrize("accepted", ["gzip", "deflate", None])
@pytest.mark.parametrize("sent", ["gzip", "deflate"])
def test_bodies_and_replies_are_packed(served, sent, accepted, count):
    values = np.arange(count, dtype=np.float32)
    head, body = binary_body(values)
    answer = post(served, PACKERS[sent](body), Content_Encoding=sent, Accept_Encoding=accepted,
                  Inference_Header_Content_Length=len(head))
    assert answer.status == 200, answer
    assert answer.headers.get("content-encoding") == accepted
    length = int(answer.headers["inference-header-content-length"])  # of the unpacked bytes
    plain = unpacked(answer)
    assert json.loads(plain[:length])["outputs"][0]["parameters"] == {"binary_data_size": 4 * count}
    assert plain[length:] == values.tobytes()


def test_json_is_packed_too(served):
    values = [float(i) for i in range(20000)]
    answer = post(served, gzip.compress(json_body(values)), Content_Encoding="gzip", Accept_Encoding="gzip")
    assert answer.headers["content-type"] == "application/json"
    assert "inference-header-content-length" not in answer.headers
    assert json.loads(unpacked(answer))["outputs"][0]["data"] == values


def test_the_coding_is_found_in_the_bytes_and_not_in_the_name(served):
    body = json_body([1.0, 2.0])
    for named, packed in [("gzip", zlib.compress(body)), ("deflate", gzip.compress(body))]:
        answer = post(served, packed, Content_Encoding=named)
        assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [1.0, 2.0]


@pytest.mark.parametrize(
    "accepted, chosen",
    [
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("gzip;q=0.5,deflate;q=0.5", "gzip"),
        ("identity, gzip", None),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity;q=0.5, gzip;q=0.2", None),
        ("gzip;q=0", None),
        ("gzip;q=rubbish, deflate;q=0.001", "deflate"),
        ("gzip;q=-1", None),
        ("deflate;q=5, gzip;q=1", "deflate"),
        ("br, zstd, *;q=0.1", None),
        ("*", None),
        (" gzip", "gzip"),
        ("gzip,,", "gzip"),
        ("", None),
    ],
)
def test_the_best_weight_chooses(served, accepted, chosen):
    answer = post(served, json_body([1.0]), Accept_Encoding=accepted)
    assert answer.status == 200
    assert answer.headers.get("content-encoding") == chosen
    assert json.loads(unpacked(answer))["outputs"][0]["data"] == [1.0]


@pytest.mark.parametrize("accepted, chosen", [("GZIP", "gzip"), ("gzip ; q=0.5", "gzip"), ("gzip; q=0", None), ("gzip;Q=0.1, deflate;q=0.2", "deflate")])
def test_blanks_and_letter_case_do_not_matter(conch, accepted, chosen):
    assert post(conch, json_body([1.0]), Accept_Encoding=accepted).headers.get("content-encoding") == chosen


def test_errors_and_other_answers_are_not_packed(served):
    answer = post(served, b"{", Accept_Encoding="gzip")
    assert answer.status >= 400 and "content-encoding" not in answer.headers and answer.error
    answer = ask(served, "GET", "/v2", headers={"Accept-Encoding": "gzip"})
    assert answer.status == 200 and "content-encoding" not in answer.headers and answer.json()["name"]


def test_other_codings_are_refused_with_those_that_are_known(served):
    for coding in ["br", "gzip, gzip", "zstd"]:
        answer = post(served, json_body([1.0]), Content_Encoding=coding)
        assert (answer.status, answer.error) == (501, "Unsupported compression type")
        assert answer.headers["accept-encoding"] == "gzip, deflate"
    assert post(served, json_body([1.0]), Content_Encoding="identity").status == 200


def test_an_empty_name_and_letter_case_are_no_other_coding(conch):
    """Triton 2.51 refuses an empty name, later releases do not."""
    assert post(conch, json_body([1.0]), Content_Encoding="").status == 200
    assert post(conch, gzip.compress(json_body([1.0])), Content_Encoding="GZip").status == 200


def test_an_empty_body_has_nothing_to_be_decompressed(served):
    answer = post(served, b"", Content_Encoding="gzip")
    assert (answer.status, answer.error) == (400, "nothing to be decompressed")


def test_the_model_is_looked_up_before_the_body_is_unpacked(served):
    answer = post(served, b"no gzip", model="nobody", Content_Encoding="gzip")
    assert answer.status == 404 and "nobody" in answer.error


def test_the_length_of_the_json_counts_unpacked_bytes(served):
    head, body = binary_body([1.0])
    answer = post(served, gzip.compress(body), Content_Encoding="gzip", Inference_Header_Content_Length=len(body) + 1)
    assert (answer.status, answer.error) == (400, f"inference header size should be in range (0, {len(body)}), got: {len(body) + 1}")


def too_large(limit):
    return f"Decompressed data size exceeds the maximum allowed value of {limit} bytes. Use --http-max-input-size to increase the limit."


def test_the_limit_holds_for_the_unpacked_bytes(conch):
    for name, pack in PACKERS.items():
        body = json_body([1.0])
        fits = pack(body + b" " * (LIMIT - len(body)))
        assert post(conch, fits, Content_Encoding=name).status == 200
        answer = post(conch, pack(body + b" " * (LIMIT + 1 - len(body))), Content_Encoding=name)
        assert (answer.status, answer.error) == (400, too_large(LIMIT))


def huge(unpacked_bytes):
    """gzip of that many zeros, made of one piece of a deflate stream again and again; its last bytes tell the truth."""
    piece = 16 << 20
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(bytes(piece)) + packer.flush(zlib.Z_FULL_FLUSH)
    count = unpacked_bytes // piece
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + first * count + end + struct.pack("<II", 0, unpacked_bytes & 0xFFFFFFFF)


def resident_kb(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])


BOMBS = {
    "1 MiB above the limit": lambda: gzip.compress(bytes(LIMIT + (1 << 20))),
    "10 GiB": lambda: huge(10 << 30),
    "members": lambda: gzip.compress(bytes(LIMIT // 4)) * 5,
    "a false promise": lambda: huge(1 << 30)[:-4] + struct.pack("<I", 100),
    "of zlib": lambda: zlib.compress(bytes(LIMIT * 64)),
}


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_takes_no_more_than_the_limit(conch, kind):
    bomb = BOMBS[kind]()
    post(conch, gzip.compress(bytes(LIMIT)), Content_Encoding="gzip")
    before = resident_kb(conch)
    for _ in range(3):
        answer = post(conch, bomb, Content_Encoding="gzip")
        assert (answer.status, answer.error) == (400, too_large(LIMIT))
    if not servers.SANITIZED:    # what a busy helper has not freed yet lies beside what the next one unpacks
        assert resident_kb(conch) - before < (6 * (LIMIT + len(bomb)) >> 10)
    assert ask(conch, "GET", "/v2/health/live").status == 200


def processor_s(server):
    """The processor time of all threads of the server."""
    return time.clock_gettime((~server.process.pid << 3) | 2)    # the kernel's number of that process's clock


def least_cost_s(server, body, tries=5, **headers):
    """The least processor time that the server takes for this body."""
    def cost():
        before = processor_s(server)
        assert post(server, body, **headers).status in (400, 500)
        return processor_s(server) - before

    return min(cost() for _ in range(tries))


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_takes_no_more_time_than_a_plain_body(conch, kind):
    """Both as processor time: of a plain body as large as the limit and the bomb together. A server with a higher limit takes 30
    times the bound for that of zlib, 60 times for the false promise."""
    bomb = BOMBS[kind]()
    plain_s = least_cost_s(conch, bytes(LIMIT)) * (LIMIT + len(bomb)) / LIMIT
    bomb_s = least_cost_s(conch, bomb, Content_Encoding="gzip")
    assert bomb_s < 6 * plain_s, f"{1e3 * bomb_s:.2f} ms, a plain body {1e3 * plain_s:.2f} ms"


def test_without_memory_for_the_unpacked_bytes_the_client_is_to_try_again(models_of_all):
    budget = 16 << 20
    with servers.Server(models_of_all, flags=[f"--connection-memory-budget={budget}"]) as short:
        answer = post(short, gzip.compress(bytes(2 * budget)), Content_Encoding="gzip")
        assert (answer.status, answer.headers.get("retry-after"), answer.error) == (503, "1", "out of memory")
        _, body = binary_body([1, 2])
        assert post(short, body, Inference_Header_Content_Length=len(binary_body([1, 2])[0])).status == 200


def test_a_bomb_in_a_bomb_is_unpacked_once(conch):
    answer = post(conch, gzip.compress(huge(1 << 30)), Content_Encoding="gzip")
    assert answer.status == 500 and answer.error.startswith("failed to parse the request JSON buffer")


def test_more_packed_bytes_than_the_limit_can_need_are_not_looked_at(conch):
    """Empty blocks unpack to nothing, however many there are."""
    body = b"\x1f\x8b\x08" + bytes(7) + b"\x00\x00\x00\xff\xff" * (LIMIT // 4)
    answer = post(conch, body, Content_Encoding="gzip")
    assert (answer.status, answer.error) == (400, too_large(LIMIT))


def test_damaged_bodies_are_refused(conch):
    whole = gzip.compress(json_body([1.0]))
    large = gzip.compress(json_body(list(np.random.default_rng(1).random(20000))))
    assert len(large) > 32 << 10
    for body, name in [(whole[:-1], "gzip"), (whole[:9], "gzip"), (whole[:-8] + bytes(8), "gzip"), (whole + b"x", "gzip"),
                       (large[:-1], "gzip"), (large + bytes(1), "gzip"), (b"{}", "deflate"), (b"\x1f", "deflate"),
                       (zlib.compress(b"{}")[2:], "deflate")]:
        answer = post(conch, body, Content_Encoding="gzip")
        assert (answer.status, answer.error) == (400, f"failed to decompress the request body: {len(body)} bytes are not valid {name}")
    assert post(conch, large, Content_Encoding="gzip").status == 200


def test_all_members_are_one_body(conch):
    body = json_body([1.0, 2.0])
    many = b"".join(gzip.compress(body[i:i + 7]) for i in range(0, len(body), 7)) + gzip.compress(b"") * 1000
    answer = post(conch, many, Content_Encoding="gzip")
    assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [1.0, 2.0]


def test_a_packed_body_may_come_in_chunks_and_behind_others(served):
    """Replies leave in the order of the requests, whoever packs them."""
    values = [float(i) for i in range(30000)]
    packed = gzip.compress(json_body(values))
    path = "/v2/models/echo/infer"
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    with Connection(served) as connection:
        chunked = request_bytes("POST", path, None, {**headers, "Transfer-Encoding": "chunked"}, connection.host)
        for i in range(0, len(packed), 10000):
            chunked += b"%x\r\n%s\r\n" % (len(packed[i:i + 10000]), packed[i:i + 10000])
        connection.send(chunked + b"0\r\n\r\n" + request_bytes("POST", path, json_body([1.0]), {}, connection.host)
                        + request_bytes("POST", path, packed, headers, connection.host))
        answers = [connection.response() for _ in range(3)]
    assert [json.loads(unpacked(a))["outputs"][0]["data"] for a in answers] == [values, [1.0], values]


@pytest.mark.sanitize
def test_a_client_that_goes_leaves_nothing(conch):
    values = np.random.default_rng(1).random(LARGE // 4, np.float32)
    head, body = binary_body(values)
    request = request_bytes("POST", "/v2/models/echo/infer", gzip.compress(body, 1),
                            {"Content-Encoding": "gzip", "Accept-Encoding": "gzip", "Inference-Header-Content-Length": len(head)})
    for _ in range(20):
        with Connection(conch) as connection:
            connection.send(request)
    with Connection(conch) as connection:  # one that stays is served
        connection.send(request)
        assert connection.response().status == 200


# ---- Clients ---------------------------------------------------------------------------------------


def tensor(values, binary):
    made = client.InferInput("INPUT0", [len(values)], "FP32")
    made.set_data_from_numpy(values, binary_data=binary)
    return made


@pytest.mark.parametrize("request_coding", ["gzip", "deflate", None])
@pytest.mark.parametrize("response_coding", ["gzip", "deflate", None])
@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient(served, request_coding, response_coding, binary):
    values = np.arange(50000, dtype=np.float32)
    with client.InferenceServerClient(served.url) as http:
        result = http.infer("echo", [tensor(values, binary)], outputs=[client.InferRequestedOutput("OUTPUT0", binary_data=binary)],
                            request_compression_algorithm=request_coding, response_compression_algorithm=response_coding)
        assert (result.as_numpy("OUTPUT0") == values).all()


def test_tritonclient_with_asyncio(served):
    values = np.arange(50000, dtype=np.float32)

    async def ask_all():
        async with aio.InferenceServerClient(served.url) as http:
            return [await http.infer("echo", [tensor(values, True)], request_compression_algorithm=coding,
                                     response_compression_algorithm=coding) for coding in ["gzip", "deflate", None]]

    for result in asyncio.run(ask_all()):
        assert (result.as_numpy("OUTPUT0") == values).all()


def test_curl(served, tmp_path):
    (tmp_path / "body").write_bytes(gzip.compress(json_body([1.0, 2.0])))
    done = subprocess.run(["curl", "-sS", "--compressed", "-H", "Content-Encoding: gzip", "--data-binary", f"@{tmp_path / 'body'}",
                           "-D", str(tmp_path / "head"), f"http://{served.url}/v2/models/echo/infer"],
                          capture_output=True, check=True, timeout=60, env={**os.environ, "no_proxy": "*"})
    assert json.loads(done.stdout)["outputs"][0]["data"] == [1.0, 2.0]
    assert "content-encoding: deflate" in (tmp_path / "head").read_text().lower() or "content-encoding: gzip" in (
        tmp_path / "head").read_text().lower()
