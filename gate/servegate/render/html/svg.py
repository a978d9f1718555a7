"""matplotlib's SVG file -> an `<svg>` to stand in the page.

What is not listed here is left out: styles and links of the file, what it says of its maker, clip paths. So
whatever matplotlib may write, the page's policy holds, its colours follow the reader's scheme, and two
figures share no id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

ROOT: Final = {"font-size": "11", "stroke-linejoin": "round"}
"""Said once for a figure: what a mark does not say itself."""
_SHAPES: Final = {
    "path": ("d", "transform"),
    "rect": ("x", "y", "width", "height"),
    "text": ("x", "y", "transform"),
    "use": ("x", "y"),
}
_STYLES: Final = (
    "fill", "fill-opacity", "font-size", "font-weight", "opacity", "stroke", "stroke-dasharray",
    "stroke-opacity", "stroke-width", "text-anchor",
)  # fmt: skip
_COLOURED: Final = ("fill", "stroke")
_LINK: Final = "{http://www.w3.org/1999/xlink}href"
_NUMBER: Final = re.compile(r"-?\d+\.\d+")
_NOT_TURNED: Final = re.compile(r"rotate\(-?0[ )]")


def inline(
    file: str,
    *,
    name: str,
    title: str,
    says: str,
    variables: Mapping[str, str],
    tips: Mapping[str, Sequence[str]],
) -> Markup:
    """The picture as markup. Every word in it is escaped.

    ``name`` starts its ids and is used once on a page. ``variables``: a colour of the file -> the CSS
    variable that the page paints it with. ``tips``: a group of the file -> what each mark in it shows where
    the pointer rests. Raises KeyError on a colour that has no variable, ValueError where tips and marks
    differ in number.
    """
    drawn = ET.fromstring(file)
    box = drawn.get("viewBox", "")
    svg = ET.Element("svg", {"role": "img", "viewBox": box, "aria-label": title, **ROOT})
    ET.SubElement(svg, "title").text = title
    ET.SubElement(svg, "desc").text = says
    ids = _ids(drawn, name)
    svg.extend(list(_marks(drawn, ids, variables, tips)))
    return Markup(ET.tostring(svg, encoding="unicode"))


def _ids(drawn: ET.Element, name: str) -> dict[str, str]:
    """An id of what the file draws more than once -> its id on the page."""
    numbers = count(1)
    found = (path.get("id") for defs in drawn.iter() if _tag(defs) == "defs" for path in defs)
    return {known: f"{name}-{next(numbers)}" for known in found if known}


def _marks(
    parent: ET.Element,
    ids: Mapping[str, str],
    variables: Mapping[str, str],
    tips: Mapping[str, Sequence[str]],
) -> Iterator[ET.Element]:
    """The marks within, without the groups around them."""
    for element in parent:
        tag = _tag(element)
        if tag == "g":
            marks = list(_marks(element, ids, variables, tips))
            told = tips.get(element.get("id", ""))
            if told is not None:
                shown = [mark for mark in marks if mark.tag != "defs"]
                for mark, tip in zip(shown, told, strict=True):
                    ET.SubElement(mark, "title").text = tip
            yield from marks
        elif tag == "defs":
            defs = ET.Element("defs")
            defs.extend(list(_marks(element, ids, variables, tips)))
            if len(defs):
                yield defs
        elif tag in _SHAPES:
            yield _mark(element, tag, ids, variables)


def _mark(element: ET.Element, tag: str, ids: Mapping[str, str], variables: Mapping[str, str]) -> ET.Element:
    mark = ET.Element(tag)
    if element.get("id") in ids:
        mark.set("id", ids[element.get("id", "")])
    if tag == "use":
        mark.set("href", "#" + ids[element.get(_LINK, "")[1:]])
    for key in _SHAPES[tag]:
        value = element.get(key)
        if value is not None and not _NOT_TURNED.match(value):
            mark.set(key, _NUMBER.sub(_short, " ".join(value.split())))
    for key, value in _declarations(element.get("style", "")):
        value = variables[value] if key in _COLOURED and value != "none" else value
        if ROOT.get(key) != value:
            mark.set(key, value)
    if tag == "text":
        mark.text = element.text
    return mark


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    """Each as an attribute, which a policy without inline styles allows as well."""
    for declaration in style.split(";"):
        key, _, value = declaration.strip().partition(": ")
        if key == "font":  # "10px 'DejaVu Sans', sans-serif": the size is kept, the page has its own font
            key, value = "font-size", next(part for part in value.split() if part.endswith("px"))
        if key in _STYLES:
            yield key, value.removesuffix("px") if key == "font-size" else value


def _short(found: re.Match[str]) -> str:
    """At 0.01 px, which no screen shows."""
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
