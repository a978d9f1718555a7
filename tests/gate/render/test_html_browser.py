"""The HTML report in a real browser: headless Chromium, no script allowed, nothing fetched."""

from __future__ import annotations

import http.server
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bundles import bundle
from PIL import Image

from servegate.render.html import data, page

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--window-size=900,1600",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"


@pytest.fixture(scope="module")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs Chromium; on Debian: apt-get install --no-install-recommends chromium")
    return found


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A server's address and the paths that were asked of it."""
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    thread.join()
    server.server_close()


def browse(chromium: str, file: Path, *flags: str) -> str:
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", *flags, file.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def colours(png: Path) -> tuple[str, set[str]]:
    """The first pixel's colour, and every colour that is somewhere."""
    with Image.open(png) as image:
        found = image.convert("RGB").getcolors(image.width * image.height) or []
        first = image.convert("RGB").crop((0, 0, 1, 1)).getcolors()
    names = ["#" + bytes(colour).hex() for _, colour in [*(first or []), *found]]
    return names[0], set(names)


def attack(url: str) -> str:
    return (
        f'"></title></desc></svg></style><img src="{url}/img"><script src="{url}/js"></script>'
        f'<link rel="stylesheet" href="{url}/css"><iframe src="{url}/frame"></iframe>'
        f'<style>body{{background:url({url}/bg)}}</style><meta http-equiv="refresh" content="0;url={url}/go">'
        f"<script>document.title='owned'</script><svg onload=\"document.title='owned'\">"
    )


def test_hostile_report_runs_nothing_and_asks_for_nothing(
    chromium: str, asked: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, paths = asked
    file = tmp_path / "report.html"
    html = page.render(data.read(bundle(tmp_path, mark=attack(url))))
    file.write_text(html, encoding="utf-8")
    dom = browse(chromium, file, "--dump-dom")
    assert paths == []
    assert not re.search(r"<(script|img|iframe|link|a|object|embed)\b", dom)
    assert len(re.findall(r"<meta\b", dom)) == 4
    assert "<title>quickstart: " in dom
    assert dom.count('<svg role="img"') == html.count('<svg role="img"') > 10
    assert dom.count("<details>") == html.count("<details>") > 0
    assert "<details open" not in dom


def test_the_same_words_unescaped_do_ask(chromium: str, asked: tuple[str, list[str]], tmp_path: Path) -> None:
    """The inverse: the server above would have seen it."""
    url, paths = asked
    file = tmp_path / "bare.html"
    file.write_text(f"<p>{attack(url)}", encoding="utf-8")
    browse(chromium, file, "--dump-dom")
    assert "/img" in paths


def test_policy_alone_would_stop_what_got_through(
    chromium: str, asked: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, paths = asked
    html = page.render(data.read(bundle(tmp_path)))
    hole = f'<img src="{url}/img"><script>document.title="owned"</script><script src="{url}/js"></script>'
    file = tmp_path / "hole.html"
    file.write_text(html.replace("<main>", f"<main>{hole}", 1), encoding="utf-8")
    dom = browse(chromium, file, "--dump-dom")
    assert paths == []
    assert "<title>quickstart: " in dom


def test_light_and_dark_follow_the_reader(chromium: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page.render(data.read(bundle(tmp_path))), encoding="utf-8")
    for scheme, page_colour, allowed in ((LIGHT, "#ffffff", "#dff3e4"), (DARK, "#0d1117", "#12331c")):
        png = tmp_path / f"{page_colour[1:]}.png"
        browse(chromium, file, scheme, f"--screenshot={png}")
        first, everywhere = colours(png)
        assert first == page_colour
        assert allowed in everywhere  # painted in the chart of changes only


def test_it_prints(chromium: str, tmp_path: Path) -> None:
    file, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    file.write_text(page.render(data.read(bundle(tmp_path))), encoding="utf-8")
    browse(chromium, file, DARK, f"--print-to-pdf={pdf}")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 3
