# SPDX-License-Identifier: Apache-2.0
"""The spans of a server under load, whose collector has whims (lib/otlp_collector.py)."""

import re
import urllib.request

import server as servers

WITHIN_S = 120
ENVIRONMENT = {"OTEL_BSP_EXPORT_TIMEOUT": "1000"}    # ms that a batch and its tries may take


def assert_whole(spans):
    """The spans of a trace come together, once, and each lies below another one of its trace."""
    by_id = {span.id: span for span in spans}
    assert len(by_id) == len(spans), "a span came twice"
    for span in spans:
        above = by_id.get(span.parent)
        assert span.start_ns <= span.end_ns and bool(span.parent) == (span.name != "InferRequest"), span
        assert not span.parent or (above and above.trace_id == span.trace_id), span


def read_counts(server):
    """Spans by what has become of them: "sent", or the reason for which they were dropped."""
    port = re.search(r"Started Metrics Service at \S*:(\d+)", server.log())[1]
    with urllib.request.urlopen(f"http://{server.address}:{port}/metrics", timeout=60) as page:
        lines = re.findall(r'^conch_spans_(?:sent|dropped\{reason="(\w+)"\}) (\d+)$', page.read().decode(), re.MULTILINE)
    return {reason or "sent": int(n) for reason, n in lines}


def assert_counted(server, collector):
    """Those that the collector has taken and rejected are what the server has counted."""
    def agree():
        counts = read_counts(server)
        return (counts["sent"], counts["rejected"]) == (collector.n_taken, collector.n_rejected)

    servers.wait_for(agree, WITHIN_S, "what the collector has taken is counted")
    counts = read_counts(server)
    print(f"spans: {counts}")
    assert collector.spans and counts["memory"] == 0
    assert_whole(collector.spans)
