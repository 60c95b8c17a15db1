# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation fits a phone, a narrow window and a wide one: nothing is cut off.

One headless Chromium loads each page once, in a frame that gets each width in turn, and reports what is wider than it may
be. A page's own scroll bar, a table that scrolls sideways, and a command or a JSON text that does so are faults. Other blocks
of code may scroll: their lines have meaning. What fails is kept as pictures, in the folder that the failure names.
"""

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading

import pytest

import server as servers

WIDTHS = (400, 640, 1400)
WITHIN_S = 240
PICTURES = 6    # at most, since one takes a second
CHROMIUM = shutil.which("chromium")
COMMAND = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions"]

pytestmark = [
    pytest.mark.conch_only("it is Conch's documentation"),
    pytest.mark.skipif(servers.SANITIZED, reason="no program of the build is run"),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make test-site"),
    pytest.mark.skipif("CONCH_WITHOUT_TRITON" in os.environ, reason="the site does not depend on a compiler (CONCH_WITHOUT_TRITON)"),
]

MEASURE = """<!DOCTYPE html><meta charset="utf-8"><iframe style="border:0;height:900px"></iframe><script>
const frame = document.querySelector("iframe"), faults = [];
const name = e => e.tagName.toLowerCase() + ": " + e.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
function measure(page, width) {
  frame.style.width = width + "px";
  const doc = frame.contentDocument, root = doc.documentElement;
  const say = text => faults.push([page, width, text]);
  if (root.clientWidth !== width) say(`the frame has ${root.clientWidth} px`);
  if (root.scrollWidth > width) say(`the page is ${root.scrollWidth} px wide`);
  for (const e of doc.querySelectorAll(".md-typeset__scrollwrap, .md-typeset table, .language-bash code, .language-console code, .language-json code"))
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth) say(`scrolls sideways: ${name(e)}`);
  for (const e of doc.querySelectorAll(".md-content :is(h1, h2, h3, h4, p, li, td, th, :not(pre) > code)"))
    if (e.getBoundingClientRect().right > width + 1) say(`ends behind the edge: ${name(e)}`);
}
async function main() {
  const {pages, widths} = await (await fetch("/task")).json();
  frame.style.width = widths[0] + "px";
  let n = 0;
  for (const page of pages) {
    await new Promise(done => { frame.onload = done; frame.src = page; });
    if (frame.contentDocument.querySelector(".md-content")) n += 1;
    frame.contentDocument.head.append(Object.assign(document.createElement("style"), {textContent: "* { transition: none !important; }"}));
    for (const width of widths) measure(page, width);
  }
  await fetch("/result", {method: "POST", body: JSON.stringify({n, faults})});
}
main();
</script>"""


class Site(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and talks with the page above."""

    def do_GET(self):
        texts = {"/measure": MEASURE, "/task": json.dumps({"pages": self.server.pages, "widths": WIDTHS})}
        if self.path not in texts:
            super().do_GET()
            return
        body = texts[self.path].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.result = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.done.set()

    def log_message(self, *_):
        pass


def measured(folder, profile, n_pictures=PICTURES):
    """What the browser found on the pages of a folder: {"n": pages with text, "faults": [page, width, text]}."""
    pages = sorted("/" + path.parent.relative_to(folder).as_posix().removeprefix(".") + "/" for path in folder.rglob("index.html"))
    handler = functools.partial(Site, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        site.pages = [page.replace("//", "/") for page in pages]
        site.done = threading.Event()
        threading.Thread(target=site.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{site.server_port}"
        command = [*COMMAND, f"--user-data-dir={profile}", "--remote-debugging-port=0", "--window-size=1500,1000", f"{url}/measure"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                assert site.done.wait(WITHIN_S), "the browser has not measured all pages"
            finally:
                browser.terminate()
        faults = site.result["faults"]
        pictures = profile.parent / "pictures"
        for page, width in sorted({(page, width) for page, width, _ in faults})[:n_pictures]:
            pictures.mkdir(exist_ok=True)
            file = pictures / f"{page.strip('/').replace('/', '-') or 'index'}-{width}.png"
            subprocess.run([*COMMAND, f"--user-data-dir={profile}", f"--window-size={width},2400", f"--screenshot={file}", url + page],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=True)
        site.shutdown()
    return {**site.result, "pages": len(pages), "pictures": pictures}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: make test-site")
    folder = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([servers.ROOT / "tools/docs/build", folder], check=True, timeout=120, stdout=subprocess.DEVNULL)
    return folder


def test_nothing_is_cut_off(site, tmp_path):
    found = measured(site, tmp_path / "profile")
    assert found["n"] == found["pages"] > 50
    told = "\n".join(f"{page} at {width} px: {text}" for page, width, text in found["faults"][:40])
    assert not found["faults"], f"{len(found['faults'])} faults; pictures in {found['pictures']}\n{told}"


MADE = {    # page: its body, and what is found there at 400 px
    "page": ("<div style='width:700px'>wide</div>", "the page is 7"),
    "table": (f"<div class='md-typeset'><table><tr><td>{'x' * 400}</table></div>", "the page is "),
    "wrapped": ("<div class='md-typeset__scrollwrap' style='overflow:auto'><div style='width:900px'>t</div></div>", "scrolls sideways: div: t"),
    "command": (f"<div class='language-bash'><code style='display:block;overflow:auto'>{'y' * 400}</code></div>", "scrolls sideways: code: yyy"),
    "text": ("<div style='overflow:hidden'><p style='width:900px'>z</p></div>", "ends behind the edge: p: z"),
}


def test_what_is_cut_off_is_found(tmp_path):
    """Each kind of fault, on a page that is made for it, and the pictures of them."""
    for name, (body, _) in MADE.items():
        (tmp_path / "made" / name).mkdir(parents=True)
        (tmp_path / "made" / name / "index.html").write_text(f"<!DOCTYPE html><body style='margin:0'><div class='md-content'>{body}</div>")
    found = measured(tmp_path / "made", tmp_path / "profile", 1)
    assert found["n"] == len(MADE)
    for name, (_, text) in MADE.items():
        said = [text for page, width, text in found["faults"] if page == f"/{name}/" and width == 400]
        assert any(fault.startswith(text) for fault in said), (name, said)
    (picture,) = found["pictures"].iterdir()
    assert picture.stat().st_size > 0
