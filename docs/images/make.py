"""Take the README's pictures: of the HTML report, of its charts, and of a pull-request comment.

    python docs/images/make.py report|charts|comment BUNDLE OUT.png

BUNDLE is what `servegate check --out` left. The report is the page that `servegate report` writes, from its
top; of its charts a few are taken. The comment is made by the renderer that `servegate post` uses, and turned
into HTML by GitHub's own Markdown parser; only the page around it is drawn here. Needs Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cmarkgfm
from PIL import Image

from servegate.render.comment import Origin, render
from servegate.render.html import page
from servegate.render.html.data import read

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--blink-settings=preferredColorScheme=1",
)  # fmt: skip
SIZES = {"report": (900, 1130), "charts": (900, 1180), "comment": (940, 660)}
CHARTS = ("Change of every row", "ttft:", "decode:")
"""Starts of titles."""
PAGE = """<!doctype html>
<meta charset="utf-8">
<style>
body { margin: 12px; font: 14px/1.5 "Noto Sans", "DejaVu Sans", sans-serif; color: #1f2328; }
article { border: 1px solid #d1d9e0; border-radius: 6px; }
header { background: #f6f8fa; border-bottom: 1px solid #d1d9e0; border-radius: 6px 6px 0 0; padding: 8px 16px;
  color: #59636e; }
header b { color: #1f2328; }
header span { border: 1px solid #d1d9e0; border-radius: 2em; padding: 0 7px; font-size: 12px; }
main { padding: 4px 16px 12px; }
h3 { font-size: 17px; line-height: 1.3; margin: 12px 0; }
p, ul, details, table { margin: 0 0 12px; }
ul { padding-left: 24px; }
li { overflow-wrap: anywhere; }
table { display: block; width: max-content; max-width: 100%; border-collapse: collapse; }
i { color: #d1242f; font-style: normal; }
th, td { border: 1px solid #d1d9e0; padding: 5px 10px; }
code { font: 85% "DejaVu Sans Mono", monospace; background: #818b981f; border-radius: 6px; padding: 2px 5px; }
a { color: #0969da; }
</style>
<article>
<header><b>github-actions</b> <span>bot</span> commented</header>
<main>COMMENT</main>
</article>
"""


def comment(bundle: Path) -> str:
    report = read(bundle)
    head, base = report.head.commit, report.base[0].commit if report.base else None
    origin = Origin(
        head_sha=head.sha if head else "unknown",
        base_sha=base.sha if base else None,
        run_url="https://github.com/you/your-service/actions/runs/1",
        run_name="run 1, attempt 1",
        suite="servegate.yaml",
        pull=1,
        hardware=report.head.fingerprint.hardware_key,
    )
    html: str = cmarkgfm.github_flavored_markdown_to_html(
        render(report.verdict, origin), cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE
    )
    return html.replace("❌", "<i>✖</i>")  # GitHub has a picture for it, this machine's fonts may not


def charts(bundle: Path) -> str:
    """The report's own head, and of its body these charts."""
    head, _, body = page.render(read(bundle)).partition("<main>")
    figures = re.findall(r"<figure.*?</figure>", body, re.DOTALL)
    taken = [f for start in CHARTS for f in figures if f"<figcaption>{start}" in f]
    return f'{head}<main><div class="charts">{"".join(taken)}</div></main>'


def take(html: str, picture: Path, size: tuple[int, int]) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("needs Chromium; on Debian: apt-get install --no-install-recommends chromium")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(html, encoding="utf-8")
        where = (f"--user-data-dir={folder}/profile", f"--screenshot={picture.resolve()}")
        window = f"--window-size={size[0]},{size[1]}"
        subprocess.run([chromium, *FLAGS, *where, window, file.as_uri()], check=True, timeout=60)
    with Image.open(picture) as image:
        # As good to the eye, at a third of the size: rare colours count as much as the ground.
        few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    few.save(picture, optimize=True)


if __name__ == "__main__":
    what, bundle = sys.argv[1], Path(sys.argv[2])
    made = {
        "report": lambda: page.render(read(bundle)),
        "charts": lambda: charts(bundle),
        "comment": lambda: PAGE.replace("COMMENT", comment(bundle)),
    }
    take(made[what](), Path(sys.argv[3]), SIZES[what])
