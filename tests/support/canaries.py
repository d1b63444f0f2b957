"""Secrets of every kind that the redactor knows, drawn anew: none is anybody's.

They are put together from a prefix and a body, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
from random import Random
from string import ascii_letters, ascii_uppercase, digits
from typing import NamedTuple

_RANDOM = Random(20261116)
_HEX = "0123456789abcdef"
_ALNUM = ascii_letters + digits


class Canary(NamedTuple):
    """A secret, its kind, and the text in which it is recognised: `{}` is where it stands."""

    kind: str
    secret: str
    within: str = "{}"


def body(size: int, letters: str = _ALNUM) -> str:
    """Random characters, with a digit and letters of both cases if the alphabet has them."""
    sure = [kind for kind in ("4", "b", "K") if kind in letters]
    return "".join(sure) + "".join(_RANDOM.choice(letters) for _ in range(size - len(sure)))


def _encoded(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def pem(name: str, *, newline: str = "\n", end: bool = True) -> str:
    """A private key that opens nothing."""
    lines = [body(64) for _ in range(5)] + [body(9) + "=="]
    last = [f"-----END {name}-----"] if end else []
    return newline.join([f"-----BEGIN {name}-----", *lines, *last])


def _prefixed() -> list[Canary]:
    hexes = {
        "digitalocean-token": ("dop_v1_", 64),
        "rubygems-key": ("rubygems_", 48),
        "mailgun-key": ("key-", 32),
        "twilio-key": ("SK", 32),
        "databricks-token": ("dapi", 32),
        "shopify-token": ("shpat_", 32),
        "elevenlabs-key": ("sk_", 48),
        "firecrawl-key": ("fc-", 32),
        "pulumi-token": ("pul-", 40),
        "buildkite-token": ("bkua_", 40),
        "sourcegraph-token": ("sgp_", 40),
        "shippo-token": ("shippo_live_", 40),
        "langsmith-key": ("lsv2_pt_", 43),
        "supabase-key": ("sbp_", 40),
    }
    others = """
        aws-bedrock-key ABSK 110 | alibaba-key LTAI 20 | google-api-key AIza 35
        google-oauth ya29. 60 | google-oauth GOCSPX- 28 | google-oauth 1//0 60
        azure-client-secret 8Q~ 33 | heroku-key HRKU- 40 | fly-token fm2_ 80 | netlify-token nfp_ 36
        render-token rnd_ 32 | tailscale-key tskey-auth- 30 | terraform-token atlasv1. 67
        vault-token hvs. 90 | vault-token hvb. 90 | doppler-token dp.pt. 43
        openshift-token sha256~ 43 | github-token ghp_ 36 | github-token gho_ 36
        github-token ghu_ 36 | github-token ghs_ 36 | github-token ghr_ 36
        github-fine-grained-token github_pat_ 82 | gitlab-token glpat- 20 | gitlab-token gldt- 20
        gitlab-token glrt- 20 | npm-token npm_ 36 | pypi-token pypi-AgEIcHlwaS5vcmc 80
        docker-token dckr_pat_ 27 | artifactory-key AKCp 69 | circleci-token CCIPAT_ 60
        slack-token xoxb-1234567890123-1234567890123- 24 | slack-token xoxp-1234567890123- 40
        slack-token xapp-1-A1234567890- 64 | anthropic-key sk-ant-api03- 95
        openrouter-key sk-or-v1- 64 | letta-key sk-let- 60 | openai-key sk-proj- 100
        openai-key sk- 48 | huggingface-token hf_ 34 | replicate-token r8_ 37 | groq-key gsk_ 52
        xai-key xai- 80 | perplexity-key pplx- 48 | cerebras-key csk- 48 | nvidia-key nvapi- 64
        together-key tgp_v1_ 43 | fireworks-key fw_ 24 | voyage-key pa- 43 | jina-key jina_ 60
        tavily-key tvly- 32 | pinecone-key pcsk_ 70 | mem0-key m0- 40 | honcho-key hch-v3- 50
        hindsight-key hsk_ 40 | stripe-key sk_live_ 24 | stripe-key rk_live_ 24
        webhook-secret whsec_ 32 | square-token sq0atp- 22 | square-token EAAA 60
        planetscale-token pscale_tkn_ 43 | supabase-key sb_secret_ 31 | linear-key lin_api_ 40
        notion-token ntn_ 46 | notion-token secret_ 43 | atlassian-token ATATT3 180
        contentful-token CFPAT- 43 | figma-token figd_ 40 | typeform-token tfp_ 44
        sentry-token sntrys_ 120 | newrelic-key NRAK- 27 | grafana-token glc_ 60
    """
    made = [Canary(kind, prefix + body(size, _HEX)) for kind, (prefix, size) in hexes.items()]
    for line in others.replace("\n", "|").split("|"):
        if line.strip():
            kind, prefix, size = line.split()
            made.append(Canary(kind, prefix + body(int(size))))
    return made


def _shaped() -> list[Canary]:
    uuid = "-".join(body(size, _HEX) for size in (8, 4, 4, 4, 12))
    jwt = ".".join((_encoded({"alg": "HS256"}), _encoded({"sub": body(12)}), body(43)))
    numbers = "".join(_RANDOM.choice("123456789") for _ in range(18))
    return [
        Canary("aws-access-key", "AKIA" + body(16, ascii_uppercase + "234567")),
        Canary("aws-access-key", "ASIA" + body(16, ascii_uppercase + "234567")),
        Canary("cloudflare-origin-key", f"v1.0-{body(24, _HEX)}-{body(146, _HEX)}"),
        Canary("slack-webhook", f"hooks.slack.com/services/T{body(9)}/B{body(9)}/{body(24)}"),
        Canary("discord-webhook", f"discord.com/api/webhooks/{numbers}/{body(68)}"),
        Canary("discord-token", f"MTA{body(21)}.{body(6)}.{body(38)}"),
        Canary("telegram-token", f"{numbers[:9]}:AA{body(33)}"),
        Canary("sendgrid-key", f"SG.{body(22)}.{body(43)}"),
        Canary("brevo-key", f"xkeysib-{body(64, _HEX)}-{body(16)}"),
        Canary("mailgun-key", f"{body(32, _HEX)}-{body(8, _HEX)}-{body(8, _HEX)}"),
        Canary("mailchimp-key", f"{body(32, _HEX)}-us12"),
        Canary("resend-key", f"re_{body(8)}_{body(24)}"),
        Canary("langfuse-key", f"sk-lf-{uuid}"),
        Canary("airtable-token", f"pat{body(14)}.{body(64, _HEX)}"),
        Canary("postman-key", f"PMAK-{body(24, _HEX)}-{body(34, _HEX)}"),
        Canary("sentry-token", f"sntryu_{body(64, _HEX)}"),
        Canary("grafana-token", f"glsa_{body(32)}_{body(8, _HEX)}"),
        Canary("dynatrace-token", f"dt0c01.{body(24)}.{body(64)}"),
        Canary("age-key", "AGE-SECRET-KEY-1" + body(58, ascii_uppercase + digits)),
        Canary("jwt", jwt),
    ]


def _named() -> list[Canary]:
    uuid = "-".join(body(size, _HEX) for size in (8, 4, 4, 4, 12))
    return [
        Canary("aws-secret-key", body(40, _ALNUM + "/+"), "aws_secret_access_key = {}"),
        Canary("aws-secret-key", body(40, _ALNUM + "/+"), 'AWS_SECRET_ACCESS_KEY="{}"'),
        Canary("azure-key", body(86, _ALNUM + "/+") + "==", "AccountName=a;AccountKey={};E=b"),
        Canary("signed-url", body(20) + "%2B" + body(22) + "%3D", "https://a.example/b?sv=1&sig={}"),
        Canary("datadog-key", body(32, _HEX), "DD_API_KEY={}"),
        Canary("twilio-token", body(32, _HEX), "TWILIO_AUTH_TOKEN: {}"),
        Canary("heroku-key", uuid, "export HEROKU_API_KEY={}"),
        Canary("cloudflare-token", body(40), "CLOUDFLARE_API_TOKEN={}"),
        Canary("bearer-token", body(40), "Authorization: Bearer {}"),
        Canary("bearer-token", body(40), "curl -H 'authorization: bearer {}' https://a.example"),
        Canary("authorization", body(30), "Authorization: Basic {}"),
        Canary("password", "hunter2!x", "password = {}"),
        Canary("password", "Tr0ub4dor&3", 'the config has {{"password": "{}"}}'.replace("{{", "{")),
        Canary("password", "xK9$mq-2vL", "mysql --password {} -h db"),
        Canary("password", "n3trc-pw0rd", "machine a.example login joe password {}"),
        Canary("api-key", body(32), "api_key: '{}'"),
        Canary("api-key", body(32), 'the body was {\\"apiKey\\": \\"{}\\"}'),
        Canary("api-key", body(32), "https://a.example/v1?api_key={}&page=2"),
        Canary("token", body(32), "client_secret={}"),
        Canary("token", body(32), "the token is {}."),
        Canary("url-password", "s3cr3t-in-url", "git clone https://joe:{}@git.example/a.git"),
        Canary("database-password", "pg-Pa55w0rd", "postgresql+asyncpg://app:{}@db.example:5432/x"),
        Canary("private-key", pem("RSA PRIVATE KEY")),
        Canary("private-key", pem("PRIVATE KEY", newline="\\n")),
        Canary("private-key", pem("EC PRIVATE KEY", end=False), "cut off: {}"),
        Canary("private-key", pem("ENCRYPTED PRIVATE KEY", newline="\r\n")),
        Canary("ssh-private-key", pem("OPENSSH PRIVATE KEY")),
        Canary("pgp-private-key", pem("PGP PRIVATE KEY BLOCK")),
    ]  # fmt: skip


CANARIES = tuple(_prefixed() + _shaped() + _named())
