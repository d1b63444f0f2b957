"""Tokens that are known by how they look: a prefix that a vendor chose and a body, or a shape.

Only runs of 20 and more letters, digits, ``_`` and ``-`` can be a token. Such runs are rare, and
finding them costs a microsecond per kilobyte: the text becomes bytes, one for each character, in
which whatever may be part of a token is an ``a`` and everything else a blank.

The formats are facts from the vendors' documentation. Each body ends either at a fixed length or
with an open repetition that nothing follows, so a match costs no more than the text it covers.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits
from typing import Final, NamedTuple

_LETTERS: Final = "[A-Za-z0-9]"
_WORD: Final = "[A-Za-z0-9_-]"
_BASE64: Final = "[A-Za-z0-9+/=_-]"
_HEX: Final = "[0-9a-f]"
_END: Final = "(?![A-Za-z0-9])"


class Format(NamedTuple):
    """A kind of token: what it may begin with (several, with blanks between), and its body."""

    kind: str
    prefixes: str
    body: str


FORMATS: Final = (
    # clouds and hosting
    Format("aws-access-key", "AKIA ASIA ABIA ACCA", "[A-Z2-7]{16}" + _END),
    Format("aws-bedrock-key", "ABSK", _BASE64 + "{60,}"),
    Format("alibaba-key", "LTAI", _LETTERS + "{16,26}" + _END),
    Format("google-api-key", "AIza", _WORD + "{35}"),
    Format("google-oauth", "ya29. GOCSPX- 1//0", "[A-Za-z0-9._-]{20,}"),
    Format("azure-client-secret", "7Q~ 8Q~", "[A-Za-z0-9_.~-]{31,34}"),
    Format("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _HEX + "{40,}"),
    Format("heroku-key", "HRKU-", _WORD + "{30,}"),
    Format("fly-token", "fm1r_ fm1a_ fm2_ fo1_", _BASE64 + "{40,}"),
    Format("cloudflare-origin-key", "v1.0-", _HEX + "{24}-" + _HEX + "{100,}"),
    Format("netlify-token", "nfp_", _LETTERS + "{30,}"),
    Format("render-token", "rnd_", _LETTERS + "{28,}"),
    Format("tailscale-key", "tskey-", _WORD + "{20,}"),
    Format("pulumi-token", "pul-", _HEX + "{40}" + _END),
    Format("terraform-token", "atlasv1.", _WORD + "{60,}"),
    Format("vault-token", "hvs. hvb. hvr.", _WORD + "{24,}"),
    Format("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", "[\\w.-]{40,}"),
    Format("openshift-token", "sha256~", _WORD + "{43}"),
    # code and packages
    Format("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9_]{36,}"),
    Format("github-fine-grained-token", "github_pat_", "[A-Za-z0-9_]{40,}"),
    Format(
        "gitlab-token",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- glimt- glagent- gloas- GR1348941",
        _WORD + "{20,}+(?:\\.[0-9a-z]{2}\\.[0-9a-z]{7,9})?",
    ),
    Format("npm-token", "npm_", _LETTERS + "{36,}"),
    Format("pypi-token", "pypi-AgE pypi-AgN", _WORD + "{40,}"),
    Format("rubygems-key", "rubygems_", _HEX + "{40,}"),
    Format("docker-token", "dckr_pat_ dckr_oat_", _WORD + "{20,}"),
    Format("artifactory-key", "AKCp", _LETTERS + "{60,}"),
    Format("buildkite-token", "bkua_", _HEX + "{40}" + _END),
    Format("circleci-token", "CCIPAT_ CCIPRJ_", "[A-Za-z0-9_]{40,}"),
    Format("sourcegraph-token", "sgp_ slk_", "[0-9a-f_]{40,}"),
    # talking
    Format(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxc- xoxd- xoxe- xapp-",
        "[A-Za-z0-9%-]{20,}",
    ),
    Format("slack-webhook", "hooks.slack.com/services/", "T\\w{6,20}/B\\w{6,20}/\\w{20,}"),
    Format(
        "discord-webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        "\\d{15,21}/" + _WORD + "{40,}",
    ),
    Format("sendgrid-key", "SG.", _WORD + "{20,24}\\." + _WORD + "{39,50}"),
    Format("brevo-key", "xkeysib- xsmtpsib-", _HEX + "{64}-" + _LETTERS + "{16}"),
    Format("mailgun-key", "key- pubkey-", _HEX + "{32}" + _END),
    Format("resend-key", "re_", _LETTERS + "{8}_" + _LETTERS + "{20,}"),
    Format("twilio-key", "SK", _HEX + "{32}" + _END),
    # models, and what serves them
    Format("anthropic-key", "sk-ant-", _WORD + "{20,}"),
    Format("openrouter-key", "sk-or-", _WORD + "{20,}"),
    Format("langfuse-key", "sk-lf- pk-lf-", "[0-9a-f-]{36}"),
    Format("letta-key", "sk-let-", "[A-Za-z0-9=_-]{20,}"),
    Format("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _WORD + "{20,}"),
    Format("openai-key", "sk-", _LETTERS + "{20,}"),
    Format("elevenlabs-key", "sk_", _HEX + "{48}" + _END),
    Format("huggingface-token", "hf_ api_org_", _LETTERS + "{30,}"),
    Format("replicate-token", "r8_", _LETTERS + "{30,}"),
    Format("groq-key", "gsk_", _LETTERS + "{40,}"),
    Format("xai-key", "xai-", _LETTERS + "{40,}"),
    Format("perplexity-key", "pplx-", _LETTERS + "{40,}"),
    Format("cerebras-key", "csk-", _LETTERS + "{40,}"),
    Format("nvidia-key", "nvapi-", _WORD + "{40,}"),
    Format("together-key", "tgp_v1_", _WORD + "{30,}"),
    Format("fireworks-key", "fw_", _LETTERS + "{22,}"),
    Format("voyage-key", "pa-", _WORD + "{40,}"),
    Format("jina-key", "jina_", _WORD + "{40,}"),
    Format("tavily-key", "tvly-", _WORD + "{20,}"),
    Format("firecrawl-key", "fc-", _HEX + "{32}" + _END),
    Format("pinecone-key", "pcsk_", _WORD + "{40,}"),
    Format("langsmith-key", "lsv2_pt_ lsv2_sk_", "[0-9a-f_]{32,}"),
    # memory
    Format("mem0-key", "m0-", _LETTERS + "{30,}"),
    Format("honcho-key", "hch-", _WORD + "{20,}"),
    Format("hindsight-key", "hsk_", _WORD + "{20,}"),
    # money and shops
    Format("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", _LETTERS + "{16,}"),
    Format("webhook-secret", "whsec_", "[A-Za-z0-9+/=]{24,}"),
    Format("shopify-token", "shpat_ shpca_ shppa_ shpss_ shptka_", "[0-9a-fA-F]{32,}"),
    Format("square-token", "sq0atp- sq0csp- sq0idp-", _WORD + "{22,}"),
    Format("square-token", "EAAA", _WORD + "{56,}"),
    Format("shippo-token", "shippo_live_ shippo_test_", _HEX + "{40}"),
    # databases, documents and boards
    Format("databricks-token", "dapi", _HEX + "{32}(?:-\\d)?" + _END),
    Format("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", "[\\w.=-]{32,}"),
    Format("supabase-key", "sbp_ sb_secret_", "[A-Za-z0-9_-]{24,}"),
    Format("linear-key", "lin_api_ lin_oauth_", _LETTERS + "{32,}"),
    Format("notion-token", "ntn_", _LETTERS + "{40,}"),
    Format("notion-token", "secret_", _LETTERS + "{43}" + _END),
    Format("airtable-token", "pat", _LETTERS + "{14}\\." + _HEX + "{64}"),
    Format("atlassian-token", "ATATT3 ATCTT3 ATBB", "[A-Za-z0-9=_-]{20,}"),
    Format("contentful-token", "CFPAT-", _WORD + "{40,}"),
    Format("figma-token", "figd_ figo_", _WORD + "{40,}"),
    Format("postman-key", "PMAK-", _HEX + "{24}-" + _HEX + "{34}"),
    Format("typeform-token", "tfp_", _WORD + "{40,}"),
    # watching
    Format("sentry-token", "sntrys_ sntryu_", _BASE64 + "{40,}"),
    Format("newrelic-key", "NRAK- NRII- NRJS- NRRA- NRIQ- NRSP-", _WORD + "{19,}"),
    Format("grafana-token", "glsa_", _LETTERS + "{32}_" + _HEX + "{8}"),
    Format("grafana-token", "glc_", "[A-Za-z0-9+/=]{32,}"),
    Format("dynatrace-token", "dt0c01. dt0s01.", _LETTERS + "{24}\\." + _LETTERS + "{64}"),
    Format("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{50,}"),
)

#: The kinds of what is found in other ways than by a prefix.
OTHER_KINDS: Final = (
    *("known-secret", "password", "api-key", "token", "url-password", "database-password"),
    *("bearer-token", "authorization", "signed-url", "private-key", "ssh-private-key"),
    *("pgp-private-key", "jwt", "telegram-token", "discord-token", "mailchimp-key"),
    *("aws-secret-key", "azure-key", "datadog-key", "twilio-token", "cloudflare-token"),
    *("okta-token", "algolia-key", "cohere-key", "mistral-key"),
)


class Prefixes(NamedTuple):
    """The compiled table: one pattern for all prefixes, and what may follow each of them."""

    any: re.Pattern[str]
    formats: dict[str, tuple[tuple[str, re.Pattern[str]], ...]]


@cache
def prefixes() -> Prefixes:
    """The table, compiled when it is first needed."""
    formats: defaultdict[str, list[tuple[str, re.Pattern[str]]]] = defaultdict(list)
    for kind, beginnings, body in FORMATS:
        for prefix in beginnings.split():
            formats[prefix].append((kind, re.compile(body, re.ASCII)))
    # `sk-ant-` before `sk-`: an alternation takes the first branch that matches.
    longest_first = sorted(formats, key=len, reverse=True)
    by_letter: defaultdict[str, list[str]] = defaultdict(list)
    for prefix in longest_first:
        by_letter[prefix[0]].append(re.escape(prefix[1:]))
    # By first letters: the engine looks at the letter once, not at every prefix.
    branches = (f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())
    return Prefixes(
        re.compile("|".join(branches)), {key: tuple(value) for key, value in formats.items()}
    )


#: What was found, and of which kind it is.
Finding = tuple[str, str]

_SHORTEST: Final = b"a" * 20
_CLASSES: Final = bytes(
    ord("a") if chr(code) in f"{ascii_letters}{digits}_-" else ord(" ") for code in range(256)
)
#: Prefixes with a sign in them, such as `hooks.slack.com/services/`, begin before the run.
_REACH: Final = 64
_JOINTS: Final = frozenset("./:~")


class _Shapes(NamedTuple):
    """Patterns that are tried where a run begins, or on the whole run."""

    dull: re.Pattern[str]
    escaped: re.Pattern[str]
    image: re.Pattern[str]
    telegram: re.Pattern[str]
    others: tuple[tuple[str, re.Pattern[str]], ...]
    jwt: re.Pattern[str]


@cache
def _shapes() -> _Shapes:
    return _Shapes(
        # Hashes, UUIDs and names in one case: nothing that a prefix could begin in.
        dull=re.compile(
            r"[0-9a-f]+|[0-9A-F]+|(?i:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
            r"|[a-z_-]+|[A-Z_-]+"
        ),
        escaped=re.compile(r"\\[nrt]|%[0-9A-Fa-f]{2}|\\u00[0-9a-f]{2}|\\x[0-9a-f]{2}"),
        image=re.compile(r"[A-Za-z0-9+/=]+"),
        telegram=re.compile(r"\d{8,10}:"),
        others=(
            ("mailchimp-key", re.compile(r"[0-9a-f]{32}-us\d{1,2}(?![\w-])")),
            ("mailgun-key", re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![\w-])")),
            ("discord-token", re.compile(r"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,}", re.ASCII)),
        ),
        jwt=re.compile(r"(eyJ[\w-]{8,}+)\.[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]+){0,2}", re.ASCII),
    )


def tokens(text: str) -> Iterator[Finding]:
    """Yield every token in a text that is known by its prefix or its shape."""
    # "replace" makes one byte of each character, so places in the bytes are places in the text.
    classes = text.encode("ascii", "replace").translate(_CLASSES)
    end = 0
    while (start := classes.find(_SHORTEST, end)) >= 0:
        reach, end = end, classes.find(b" ", start)
        end = len(text) if end < 0 else end
        before = text[start - 1] if start else ""
        # An image in a data URL: megabytes of base64 that would contain a prefix by chance.
        if before == "," and text.endswith(";base64", 0, start - 1):
            image = _shapes().image.match(text, start)
            end = image.end() if image else end
            continue
        if before not in _JOINTS and _shapes().dull.fullmatch(text, start, end):
            if shaped := _shaped(text, start):
                yield shaped[0]
            continue
        reach = max(reach, start - _REACH) if before in _JOINTS else start
        for finding, stop in _in_run(text, reach, start, end):
            end = max(end, stop)
            yield finding


def _in_run(text: str, reach: int, start: int, end: int) -> Iterator[tuple[Finding, int]]:
    """Yield the tokens of one run and where each ends: some continue beyond a dot."""
    if shaped := _shaped(text, start):
        yield shaped
    table = prefixes()
    while match := table.any.search(text, reach, end):
        reach = match.start() + 1
        if not _begins(text, match.start()):
            continue
        for kind, body in table.formats[match[0]]:
            if rest := body.match(text, match.end()):
                reach = rest.end()
                if not is_placeholder(rest[0]):
                    yield (text[match.start() : rest.end()], kind), rest.end()
                break


def _begins(text: str, at: int) -> bool:
    """Return whether a token can begin here: not after a letter, unless that ends an escape."""
    before = text[at - 1] if at else " "
    if not (before.isascii() and before.isalnum()):
        return True
    escaped = _shapes().escaped
    return any(at >= size and escaped.fullmatch(text, at - size, at) for size in (2, 3, 4, 6))


def _shaped(text: str, start: int) -> tuple[Finding, int] | None:
    """Return a token without a prefix that begins with the run, or just before it, and its end."""
    shapes = _shapes()
    if shapes.escaped.match(text, start - 1 if start else 0):  # the n of a written line end
        start += 1
    if start and text[start - 1] == ":":
        for size in (11, 10, 9):
            bot = start >= size and shapes.telegram.fullmatch(text, start - size, start)
            if bot and text.startswith("AA", start):
                return (text[start - size : start + 35], "telegram-token"), start + 35
    for kind, pattern in shapes.others:
        if match := pattern.match(text, start):
            return (match[0], kind), match.end()
    at = text.find("eyJ", start, start + 16)
    if at >= 0 and (at == start or _begins(text, at)) and (match := shapes.jwt.match(text, at)):
        return ((match[0], "jwt"), match.end()) if _is_json(match[1]) else None
    return None


def _is_json(part: str) -> bool:
    """Return whether the first part of a JWT decodes to the beginning of an object."""
    try:
        decoded = base64.urlsafe_b64decode(part[: len(part) // 4 * 4])
    except (ValueError, binascii.Error):
        return False
    return decoded[:1] == b"{" and b'"' in decoded


_PLACEHOLDERS: Final = (
    r"example|placeholder|changeme|change[_-]me|dummy|redacted|your[_-]|[_-]here\b|x{6}|\*{3}"
    r"|\.{3}"
)
#: Words and small numbers with signs between: the name of something, not a secret.
_NAME_PART: Final = r"(?:[A-Z]?[a-z]+|[A-Z]+|v?\d{1,4})"
_FEW: Final = 6
_LONG: Final = 16
# Shannon entropy in bits per character. Sixteen random hex digits have a little more than 3; words
# and repeated patterns have less.
_BITS: Final = 2.8


@cache
def _names() -> re.Pattern[str]:
    return re.compile(rf"{_NAME_PART}(?:[_\-./:]+{_NAME_PART}){{0,40}}+[_\-./:]*")


@cache
def _placeholders() -> re.Pattern[str]:
    return re.compile(_PLACEHOLDERS, re.IGNORECASE)


def is_placeholder(body: str) -> bool:
    """Return whether the body of a token is a placeholder or a name."""
    start = body[:200]
    return (
        len(set(start)) < _FEW
        or _names().fullmatch(start) is not None
        or _placeholders().search(start) is not None
    )


def is_password(value: str) -> bool:
    """Return whether a value that is called a password can be one."""
    return (
        len(value) >= _FEW
        and not _is_code(value)
        and not is_placeholder(value)
        and (not value.isalpha() or _mixes_cases(value))
    )


def is_random(value: str) -> bool:
    """Return whether a value that is called a key or a token looks random."""
    return (
        len(value) >= _LONG
        and not _is_code(value)
        and not is_placeholder(value)
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and _bits(value[:200]) >= _BITS
    )


def _is_code(value: str) -> bool:
    """Return whether a value is a variable, a call or a template, and not the secret itself."""
    return value[0] in "$<{%([&@/~." or any(sign in value for sign in ("(", "${", "{{", "[", "->"))


def _mixes_cases(value: str) -> bool:
    return any(map(str.isupper, value[1:])) and any(map(str.islower, value))


def _bits(value: str) -> float:
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())
