"""No secret that is known leaves the process, and ordinary text leaves it as it was."""

from __future__ import annotations

import string
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servegate.fingerprint import Fingerprint
from servegate.masking import ANSWERS_NOTE, Secrets, masked, without_secrets
from servegate.record import RequestRecord, RoundRecord, RunRecord, WorkloadRecord

ALNUM = string.ascii_letters + string.digits
TOKENS = [
    "ghp_" + "a1B2" * 9,
    "ghs_" + "a1B2" * 9 + ".eyJ-x_y.sig-1",
    "github_pat_11ABCDEFG0_" + "a1B2" * 10,
    "glpat-" + "a1B2-" * 4,
    "sk-" + "a1B2" * 12,
    "sk-proj-" + "a1B2_-" * 8,
    "sk-ant-api03-" + "a1B2_-" * 8,
    "hf_" + "aBcD" * 8 + "ef",
    "AIza" + "a1B2_" * 7,
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/=\nabc\n-----END RSA PRIVATE KEY-----",
]
secrets = st.text(st.sampled_from(ALNUM + "+/=_-."), min_size=8, max_size=40).filter(
    lambda text: any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
)
surroundings = st.text(max_size=30)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "around", ["{}", "key={};", "the key is `{}`.", 'x "{}"\n', "Bearer {}", "(%{}%)", "é{}é"]
)
def test_a_token_is_known_by_its_shape(token: str, around: str) -> None:
    assert Secrets().mask(around.format(token)) == around.format("***")


def test_of_an_address_the_credentials_alone_are_masked() -> None:
    text = "clone of https://someone:pa55@example.org/a/b failed; see https://example.org:8000/x@y"
    assert Secrets().mask(text) == text.replace("someone:pa55", "***")


def test_a_private_key_that_is_cut_off_is_masked_to_its_last_character() -> None:
    assert Secrets().mask("-----BEGIN PRIVATE KEY-----\nMIIEow+/=\nabc") == "***"


@pytest.mark.parametrize(
    "text",
    [
        "risk-based task-oriented desk-bound sk-learn-compatible-estimators-and-more",
        "behaviour.completion_tokens: 159 tokens -> 398 tokens (+150 %)",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "intel-r-xeon-r-processor-ef9f53f6 smollm2-135m hf_hub_download github_pat_test ghp_short",
        "http://127.0.0.1:8000/v1/models -----BEGIN PUBLIC KEY----- eyJ.eyJ.x",
        "AKIA is a prefix; ASIA is a continent; xoxo-with-love-and-kisses",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Secrets().mask(text) == text


@given(st.lists(st.sampled_from(["a", "the", "risk-", "sk-", "gh", "key ", "_", "-", ":", "/", "day", ". "])))
def test_no_words_make_a_token(parts: list[str]) -> None:
    text = "".join(parts)
    assert Secrets().mask(text) == text


@given(st.lists(secrets, min_size=1, max_size=4), st.lists(surroundings, min_size=5, max_size=5), st.data())
def test_no_value_of_the_environment_is_left(
    values: list[str], around: list[str], data: st.DataObject
) -> None:
    known = Secrets.of({f"S{index}_TOKEN": value for index, value in enumerate(values)})
    text = around[0] + "".join(value + after for value, after in zip(values, around[1:], strict=False))
    shown = known.mask(text)
    assert not any(value.strip() in shown for value in values)
    assert known.mask(shown) == shown


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "github_token", "DB_PASSWORD_2", "MYSECRET", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"],
)
def test_names_that_say_secret(name: str) -> None:
    assert Secrets.of({name: "s3cr3t-value"}).mask("x s3cr3t-valuey") == "x ***y"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "s3cr3t-value"),
        ("MAX_TOKENS", "s3cr3t-value"),
        ("HOME", "s3cr3t-value"),
        ("SECRET_NAME", "s3cr3t-value"),
        ("HF_TOKEN_PATH", "s3cr3t-value"),
        ("HF_TOKEN", "/usr/bin"),
        ("HF_TOKEN", "s3cr3t"),
        ("USE_TOKEN", "disabled"),
        ("USE_TOKEN", "true"),
        ("USE_TOKEN", ""),
    ],
)
def test_what_is_no_secret(name: str, value: str) -> None:
    text = f"a {value} b disabled s3cr3t-value /usr/bin"
    assert Secrets.of({name: value}).mask(text) == text


def test_a_password_that_is_a_word_blanks_no_part_of_another() -> None:
    known = Secrets.of({"DB_PASSWORD": "postgres"})
    assert known.mask("postgres, postgresql, (postgres)") == "***, postgresql, (***)"


def test_a_secret_is_found_on_one_line_in_json_and_in_an_address_too() -> None:
    value = 'first "line" of 1\nand/a+second=line-of-20'
    known = Secrets.of({"MY_SECRET": value})
    forms = [
        value,
        'first "line" of 1 and/a+second=line-of-20',
        r"first \"line\" of 1\nand/a+second=line-of-20",
        "first%20%22line%22%20of%201%0Aand%2Fa%2Bsecond%3Dline-of-20",
    ]
    assert [known.mask(f"<{form}>") for form in forms] == ["<***>"] * 4
    assert known.mask("and/a+second=line-of-20") == "***"


@dataclass(frozen=True)
class Page:
    title: str
    counts: dict[str, int]
    rows: tuple[str | int, ...] = ()


def test_everything_in_a_page_is_masked_and_names_that_become_equal_stay_two() -> None:
    known = Secrets.of({"A_TOKEN": "first-1-secret", "B_TOKEN": "second-2-secret"})
    page = Page("of first-1-secret", {"first-1-secret": 1, "second-2-secret": 2}, ("second-2-secret", 3))
    assert masked(page, known) == Page("of ***", {"***": 1, "****": 2}, ("***", 3))
    clean = Page("a", {"b": 1}, ("c",))
    assert masked(clean, known) is clean


def test_of_a_record_what_a_target_said_is_masked_and_no_name_that_is_judged() -> None:
    token = TOKENS[0]
    request = RequestRecord(
        id=token,
        prompt_id=token,
        prompt_digest="d",
        scheduled_ns=0,
        sent_ns=0,
        ended_ns=1,
        text=f"It is {token}",
        error=f"HTTP 401 for {token}",
        token_ids=(1, 2, 3),
    )
    record = _record(request)
    seen = without_secrets(record, Secrets())
    expected = _record(request.model_copy(update={"text": "It is ***", "error": "HTTP 401 for ***"}))
    assert seen == expected.model_copy(update={"notes": (ANSWERS_NOTE,)})
    assert without_secrets(seen, Secrets()) is seen


def _record(request: RequestRecord) -> RunRecord:
    return RunRecord(
        suite="s",
        suite_digest="s",
        prompt_set_digest="p",
        created="2026-10-13T00:00:00Z",
        fingerprint=Fingerprint(machine={}, software={}, served={}),
        workloads=(
            WorkloadRecord(
                name="w",
                kind="closed",
                numerics="reference",
                offered={},
                rounds=(RoundRecord(wall_ns=1, requests=(request,)),),
            ),
        ),
    )
