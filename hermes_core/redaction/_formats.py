"""The tokens that can be told by how they begin: a prefix that a vendor chose, and a body.

Facts from the vendors' documentation. Each body ends either at a fixed length or with an open
repetition that nothing follows, so that a match costs no more than the text it covers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
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
    longest_first = sorted(formats, key=len, reverse=True)
    by_letter: defaultdict[str, list[str]] = defaultdict(list)
    for prefix in longest_first:
        by_letter[prefix[0]].append(re.escape(prefix[1:]))
    # By first letters: the engine looks at the letter once, not at every prefix.
    branches = (f"{letter}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())
    return Prefixes(
        re.compile("|".join(branches)), {key: tuple(value) for key, value in formats.items()}
    )
