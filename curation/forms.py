"""Defines patterns of keys, passwords and personal data: kinds, regular expressions, and counts of secret characters.

Every pattern is bounded, and most begin at the start of a word, so that the search takes linear time. If a pattern is
ambiguous (any sixteen digits may be a card), a check decides: issuers, lengths, check digits, area codes, or whether a
word looks like a secret.

The package phonenumbers needs a country, and takes 39 of 100 rows such as `881 857 6290`, and boxes of pixels, for
telephone numbers. python-stdnum (6 MB) would only replace the Luhn check and the lengths of accounts, and it lacks
Algeria's.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass

_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_NUMBER = r"(?<![\w.-])"
"""Start of a number that is not part of another number, of a name or of a version."""

CARDS: dict[str, range | tuple[int, ...]] = {
    "4": (13, 16, 19),  # Visa
    "5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720": (16,),  # Mastercard
    "3[47]": (15,),  # American Express
    "30[0-5]|309|3[689]": (14, 16),  # Diners Club
    "6011|64[4-9]|65": range(16, 20),  # Discover
    "352[89]|35[3-8]": range(16, 20),  # JCB
    "62|81": range(16, 20),  # UnionPay
    "5018|5020|5038|5893|6304|6759|676[1-3]": range(13, 20),  # Maestro
    "220[0-4]": range(16, 20),  # Mir
    "60|82": (16,),  # RuPay
}
"""Numbers of digits of an issuer's cards, by a pattern of their first digits."""
GROUPS = ((4, 4, 4, 4, 3), (4, 4, 4, 4), (4, 6, 5), (4, 6, 4))
"""Groups of digits in written card numbers."""
ACCOUNTS = {
    country: int(length)
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FK FI FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
        24: "AD CZ DZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HN HU LB NI PL SV", 29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip
"""Number of letters and digits in an account number, by country (the IBAN registry of SWIFT)."""


def card(text: str) -> int:
    """Return the text's length if an issuer has such cards and the check digit is correct (ISO/IEC 7812-1), else 0.

    A single repeated digit is no card.
    """
    digits = re.sub(r"\D", "", text)
    if len(set(digits)) == 1 or not any(
        len(digits) in lengths and re.match(begins, digits) for begins, lengths in CARDS.items()
    ):
        return 0
    doubled = [sum(divmod(2 * int(one), 10)) if at % 2 else int(one) for at, one in enumerate(reversed(digits))]
    return 0 if sum(doubled) % 10 else len(text)


def account(text: str) -> int:
    """Return the length of the account number at the start if its check digits are correct (ISO 13616, mod 97)."""
    places = [at for at, one in enumerate(text) if one.isalnum()]
    length = ACCOUNTS.get(text[:2].upper(), 99)
    if len(places) < length or text[(end := places[length - 1] + 1) : end + 1].isalnum():
        return 0
    plain = "".join(text[at] for at in places[:length])
    return end if int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1 else 0


def domestic(text: str) -> int:
    """Return the length of the longest prefix with the 10 or 11 digits of a telephone number with a leading zero."""
    ends = (len(text), *(at for at in range(len(text) - 1, 8, -1) if text[at] in " -"))
    return next((end for end in ends if 10 <= sum(one.isdigit() for one in text[:end]) <= 11), 0)


_NO_SECRET = re.compile(
    r"[*•●·.xX_…-]+|<.*|\$?\{.*|\$[A-Z_]+|%\w+%|\[redacted.*|(?i:null|none|nil|true|false|undefined)"
)
"""Placeholders that are written in place of a secret."""


def given(word: str) -> int:
    """Count a password that directly follows its name: any word that is no placeholder."""
    return 0 if _NO_SECRET.fullmatch(word.rstrip(".,;:!?)]}")) or _NO_SECRET.fullmatch(word) else len(word)


def in_sentence(word: str) -> int:
    """Count a password in a sentence; a lower-case word does not count, as in `the password is required`."""
    plain = word.rstrip(".!?)")
    return 0 if plain.isalpha() and plain.islower() else given(word)


def odd(word: str) -> int:
    """Count a password further from its name: digits, or a word with a digit or a sign that sentences do not have."""
    plain = word.rstrip(".!?):")
    signed = any(one.isdigit() or one in "!@#$%^&*+=~|_" for one in plain)
    return given(word) if plain.isdigit() or (signed and any(one.isalpha() for one in plain)) else 0


_NO_TOKEN = re.compile(r"[^\w.~+/=:%|-]")


def token(word: str) -> int:
    """Count the key or token at the start: a word of letters and digits, or a long word of mixed case, but no function
    call."""
    plain = _NO_TOKEN.split(word, maxsplit=1)[0]
    letters, digits = any(one.isalpha() for one in plain), any(one.isdigit() for one in plain)
    mixed = plain.lower() != plain and len(plain) >= 20
    right = len(plain) >= 6 and letters and (digits or mixed) and word[len(plain) :][:1] not in ("(", "[")
    return given(plain) if right else 0


def basic(word: str) -> int:
    """Return the word's length if it encodes a name and a password (RFC 7617), else 0."""
    try:
        plain = base64.b64decode(word, validate=True)
    except binascii.Error:
        return 0
    return len(word) if b":" in plain and plain.isascii() else 0


def cookie(text: str) -> int:
    """Return the length of a cookie's value, or of several, if one of them is a token or a number, else 0."""
    values = (pair.rpartition("=")[2] for pair in text.split(";"))
    return len(text) if any(token(one) or (one.isdigit() and len(one) >= 6) for one in values) else 0


@dataclass(frozen=True, slots=True)
class Form:
    """A pattern of a kind, with the secret in its group `secret` if there is one, and a count of the secret characters.

    The count is 0 if the text only looks like a secret.
    """

    kind: str
    pattern: re.Pattern[str]
    counts: Callable[[str], int] = len


def _form(kind: str, pattern: str, counts: Callable[[str], int] = len) -> Form:
    return Form(kind, re.compile(pattern), counts)


def _everywhere(pattern: str) -> str:
    """Match a secret at every position, also within text that a check has rejected."""
    return f"(?=(?P<secret>{pattern}))"


def _cards(groups: tuple[int, ...]) -> Form:
    first, *rest = groups
    pattern = rf"\d{{{first}}}(?P<by>[ \xa0.-])" + "(?P=by)".join(rf"\d{{{length}}}" for length in rest)
    return _form("card", _NUMBER + _everywhere(pattern + r"(?!\w|\.\d|-\w{5})"), card)


_AREA = r"[2-9](?!11)\d\d"
"""Area or exchange code of the North American plan."""
_GAP = r"[ \xa0./-]?"
_ABROAD = (
    rf"(?:1{_GAP}\(?{_AREA}\)?{_GAP}{_AREA}{_GAP}\d{{4}}"
    rf"|[2-9]\d{{0,2}}{_GAP}(?:\(\d{{1,4}}\){_GAP}\d|[1-9])(?:{_GAP}\d){{6,12}})"
)
"""Digits after a plus or two zeros."""
_VERSIONS = ("v", "ver", "vers", "version", "build", "release", "rev", "revision", "firmware")
_NO_VERSION = "".join(
    rf"(?<!\b(?i:{word}){after})" for word in _VERSIONS for after in ("[ :=/#]", "[.:=#] ", " [:=#v]", " [:=] ")
)
"""Excludes numbers directly after a word for a version. Other dotted groups of three, three and four digits are a
telephone number, if no digit, dot or letter follows them."""
_NO_PRERELEASE = r"(?!(?i:[-+.]?(?:a|b|rc|alpha|beta|dev|pre|post|build|snapshot|final)\.?\d{0,4})(?![A-Za-z]))"
_CALLED = (
    r"(?i:(?<![a-z])(?:(?:tele|cell|smart)?phone|tel|fax|mobile|mob|cell|call|dial|sms|whatsapp|ring)s?|手机号?码?|电话)\.?"
    r"(?i: (?:numbers?|no\.?|nr\.?|me|us|at|on|with|to)){0,2}(?: is)?[ \t\n:：=#\"']{0,3}"
)

_NAME = r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))"
"""Start of a name, also within a longer name: `DB_PASSWORD`, `userPassword`."""
_PASSWORD = r"(?i:pass(?:word|wd|phrase|code|wort)|pwd|secret|kennwort|mot de passe|contraseña|senha|密码)"
_PASS = (
    r"(?i:pgpassword|(?:rabbitmq[_-]default|db|database|mysql|postgres|mongo|redis|mqtt|ldap|smtp|imap|[eg]?mail|ftp|ssh"
    r"|sudo|become|root|admin)[_-]pass)"
)
"""Names of passwords without a full word for password; they count only if a value is assigned."""
_KEY = (
    r"(?i:(?:api|access|secret|account|private|auth|signing|encryption|client|shared)[ _-]?(?:access[ _-]?)?"
    r"(?:key|token)|token)"
)
_MARK = r"(?:\\{0,3}[\"'])"
_ASSIGNED = rf"(?:[_-]?\d{{1,2}})?{_MARK}?[ \t]{{0,3}}(?:=>|:=|[:=：])[ \t]{{0,3}}"
_IS = r"(?i: is| to be) "
_REST = r"(?:[^\s\"'”,;\\]|\\(?![nrt\"']))"
_COOKIE, _VALUE = r"[^\s=;,\"'\\]{1,100}", r"[^\s;\"'\\]{1,2000}"
_LETTER = r"A-Za-zÀ-ÖØ-öø-ɏ\u0300-\u036fͰ-ӿ"
"""Letters of addresses: Latin, Greek and Cyrillic, with their accents; words of other scripts precede an address
without a space."""
_WORD = rf"(?P<quote>{_MARK}|“)?(?P<secret>(?(quote)(?:[^\"'”\n\\]|\\(?![\"'])){{3,500}}|{_REST}{{4,2000}}))"
"""A word, or all text between quotation marks."""

_NO_VARIABLE = r"(?!\\{0,3}\"?\$)"
"""Excludes a shell variable, which the shell replaces."""
_AND = r"(?:&(?:amp;)?|\\u0026)"
_PARAMETERS = rf"(?:{_AND}[a-z]{{1,5}}=[^\s&\"'<>\\]{{0,200}}){{0,12}}?{_AND}"
"""Parameters between two others of an address."""
_SIGNATURE = r"(?P<secret>(?:[A-Za-z0-9+/_-]|%[0-9A-Fa-f]{2}){43,88}={0,2})"
_ARGUMENT = r"(?:\"[^\"\n]{0,100}\"|'[^'\n]{0,100}'|[^\s|;&\"'-][^\s|;&]{0,100})"
_OPTIONS = (
    rf"(?:[ \t]{{1,3}}{_ARGUMENT})?(?:[ \t]{{1,3}}-[^\s|;&]{{1,100}}(?:[ \t]{{1,3}}{_ARGUMENT})?){{0,12}}?[ \t]{{1,3}}"
)
"""Arguments of a command: one word, and options with or without a value."""

_CALLS = ((re.compile(_NAME + _KEY + r"$"), token), (re.compile(_NAME + f"(?:{_PASSWORD}|{_PASS})$"), given))


def called(field: str, text: str) -> int:
    """Count the characters of a field's text that are secret because of the field's name, such as `password` or
    `apiKey`."""
    return max((counts(text) for name, counts in _CALLS if name.search(field)), default=0)


KEYS = (
    r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,250}|whsec_[A-Za-z0-9+/]{16,100}",  # Stripe
    r"(?:gh[pousr]|glpat|gl(?:rt|dt|ptt|soat)|xox[abeprs]|xapp)[_-][A-Za-z0-9_-]{16,250}",  # GitHub, GitLab, Slack
    r"github_pat_[A-Za-z0-9_]{20,250}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}",  # Amazon
    r"ABSK[A-Za-z0-9+/]{100,300}={0,2}|bedrock-api-key-[A-Za-z0-9+/]{40,4000}={0,2}",  # Amazon Bedrock
    r"AIza[0-9A-Za-z_-]{30,60}|ya29\.[0-9A-Za-z_-]{16,2000}|GOCSPX-[0-9A-Za-z_-]{20,60}",  # Google
    r"SG\.[A-Za-z0-9_-]{10,60}\.[A-Za-z0-9_-]{10,100}",  # SendGrid
    r"shp(?:at|ca|pa|ss|ua)_[A-Fa-f0-9]{16,64}",  # Shopify
    r"dapi[0-9a-f]{32}(?:-\d)?",  # Databricks
    r"do[opr]_v1_[a-f0-9]{32,64}",  # DigitalOcean
    r"pypi-AgE[A-Za-z0-9_-]{13,500}",
    r"(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks)/[A-Za-z0-9/_-]{16,250}",
    r"(?:webhook|outlook)\.office(?:365)?\.com/webhook(?:b2)?/[A-Za-z0-9@/_-]{16,400}",  # Microsoft Teams
    r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{30,33}[A-Za-z0-9_~-]",  # Microsoft Entra
    r"AGE-SECRET-KEY-1[0-9A-Z]{20,80}|dckr_pat_[A-Za-z0-9_-]{16,60}",
    r"hv[bs]\.[A-Za-z0-9_-]{20,400}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,80}",  # HashiCorp
    r"(?:bot)?\d{6,12}:AA[A-Za-z0-9_-]{33}",  # Telegram
    r"(?=[A-Za-z_-]{0,26}\d)[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,60}",  # Discord
    r"SK[0-9a-f]{32}(?![A-Za-z0-9])|(?<![-_])key-[0-9a-f]{32}(?![A-Za-z0-9])",  # Twilio, Mailgun
    r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])|sq0[a-z]{3}-[A-Za-z0-9_-]{20,60}",  # Mailchimp, Square
    r"lin_(?:api|oauth)_[A-Za-z0-9]{16,100}",  # Linear
    r"pn[ub]_[A-Za-z0-9]{36,60}|wandb_v1_[A-Za-z0-9_]{60,100}",  # Prefect, Weights & Biases
    r"ntn_[A-Za-z0-9]{40,60}|pplx-[A-Za-z0-9]{40,64}",  # Notion, Perplexity
    r"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|glc_eyJ[A-Za-z0-9+/]{29,400}={0,3}",  # Grafana
    r"ops_eyJ[A-Za-z0-9+/_-]{100,4000}={0,3}",  # 1Password
    r"PMAK-[A-Za-z0-9]{24}-[A-Za-z0-9]{34}|pul-[a-f0-9]{40,64}",  # Postman, Pulumi
    r"sntry[aisu]_[A-Za-z0-9+/=_-]{40,1000}|rubygems_[a-f0-9]{48,64}",  # Sentry, RubyGems
    r"NR(?:AK|II|JS|RA)-[A-Za-z0-9_-]{19,64}|HRKU-[A-Za-z0-9_-]{36,80}",  # New Relic, Heroku
    r"x(?:key|smtp)sib-[a-f0-9]{64}-[A-Za-z0-9]{16}",  # Brevo
    r"dp\.(?:ct|pt|sa|said|scim|audit|st(?:\.[a-z0-9_-]{2,35})?)\.[A-Za-z0-9]{40,60}",  # Doppler
    r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}",  # Airtable
    r"AKCp[A-Za-z0-9]{60,80}|cmVmdGtu[A-Za-z0-9]{50,70}",  # JFrog
    r"sgp_(?:(?:[A-Fa-f0-9]{16}|local)_)?[A-Fa-f0-9]{40}",  # Sourcegraph
    r"fm(?:1[ar]?|2)_[A-Za-z0-9+/]{80,4000}={0,3}|fo1_[A-Za-z0-9_-]{43}",  # Fly.io
    r"dt0[a-z]\d\d\.[A-Za-z0-9]{8,24}\.[A-Za-z0-9]{64}",  # Dynatrace
    r"sbp_(?:[a-z0-9]{2,8}_)?[a-f0-9]{40}",  # Supabase
)
"""Keys that identify their issuer."""
LIKELY_KEYS = (
    r"sk-[A-Za-z0-9_-]{16,250}",
    r"(?:npm|hf|gsk|r8)_[A-Za-z0-9]{16,250}|nvapi-[A-Za-z0-9_-]{16,250}|xai-[A-Za-z0-9]{16,250}",
    r"(?:bot)?\d{6,12}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])",  # Telegram
    r"AT(?:ATT|CTT|BB)[A-Za-z0-9_=-]{16,400}|EAA[A-Za-z0-9]{20,400}",  # Atlassian, Facebook
    r"gl(?:agent|cbt|ffct|ft|imt|oas)-[A-Za-z0-9_-]{20,250}",  # GitLab
    r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9_])|api_org_[A-Za-z0-9]{30,40}(?![A-Za-z0-9_])",  # Notion, Hugging Face
    r"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9_])",  # Alibaba
    r"fig(?:[dp]|[ou][hr]?)_[A-Za-z0-9_-]{36,60}|sb_secret_[A-Za-z0-9_-]{20,60}",  # Figma, Supabase
    r"tvly-[A-Za-z0-9_-]{20,100}",  # Tavily
)
"""Keys with prefixes that ordinary names may also have."""

FORMS: tuple[Form, ...] = (
    _form(
        "key",
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?s:[^-]|-(?!----)){0,20000}"
        r"(?:-----END(?: [A-Z ]{3,50}-----)?)?",
    ),
    _form("key", _START + f"(?:{'|'.join(KEYS)})"),
    _form("key", _START + f"(?:{'|'.join(LIKELY_KEYS)})", token),
    _form("key", r"(?<![\w-])eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,2000}"),
    _form("key", r"(?i:\bbearer)[ \t]{1,3}(?P<secret>[A-Za-z0-9._~+/=-]{12,2000})", token),
    _form("key", r"(?i:\bbasic)[ \t]{1,3}(?P<secret>[A-Za-z0-9+/]{6,400}={0,2})", basic),
    _form(
        "key",
        rf"(?i:(?<![A-Za-z])auth){_ASSIGNED}{_MARK}?(?P<secret>[A-Za-z0-9+/]{{6,400}}={{0,2}})(?![A-Za-z0-9+/=])",
        basic,
    ),
    _form("key", r"(?i:X-(?:Amz|Goog)-Signature)=(?P<secret>[0-9A-Fa-f]{64,1024})"),
    _form("key", rf"{_START}s[ev]=[^\s&\"'<>\\]{{1,60}}{_PARAMETERS}sig={_SIGNATURE}", token),
    _form("key", rf"{_START}sig={_SIGNATURE}(?={_PARAMETERS}s[ev]=)", token),
    _form(
        "key",
        rf"(?i:\bauthorization){_ASSIGNED}{_MARK}?(?:[A-Za-z][\w-]{{1,20}}[ \t]{{1,3}})?"
        r"(?P<secret>[A-Za-z0-9._~+/=-]{6,2000})",
        token,
    ),
    _form("key", rf"(?i:\bset-cookie){_ASSIGNED}{_MARK}?{_COOKIE}=(?P<secret>{_VALUE})", cookie),
    _form(
        "key",
        rf"(?i:(?<![\w-])cookie){_ASSIGNED}{_MARK}?(?P<secret>{_COOKIE}={_VALUE}(?:;[ ]?{_COOKIE}={_VALUE}){{0,40}})",
        cookie,
    ),
    _form(
        "password",
        rf"\bcurl\b[^\n]{{0,200}}?[ \t](?:-u|--user)[ =]?{_MARK}?[^\s:\"']{{1,100}}:(?P<secret>[^\s\"']{{1,200}})",
        given,
    ),
    _form("password", rf"\bsshpass[ \t]{{1,3}}-p[ \t]{{0,3}}{_NO_VARIABLE}{_WORD}", given),
    _form(
        "password",
        rf"\b(?:mysql|mariadb)(?:-?(?:dump|admin|import|check|show|slap|pump))?(?:\.exe)?{_OPTIONS}"
        rf"-p(?!(?:[\d.]{{1,15}}:)?\d{{1,5}}:\d|assword\b|rotocol\b){_NO_VARIABLE}{_WORD}",
        given,
    ),
    _form(
        "password",
        _START + r"(?:(?i:secret[ _-]?access[ _-]?key)(?:[ \t]{0,3}\[[^\]\n]{0,40}\])?[\s:=\"']{1,12}"
        r"|(?:AKIA|ASIA)[0-9A-Z]{16}[ \t]?[,:\s])(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        token,
    ),
    _form("password", r"://[^\s/:@]{0,100}:(?!\d{1,5}[?#])(?P<secret>[^\s/]{1,200})@(?=[^\s/])"),
    _form("password", _NAME + _KEY + _ASSIGNED + _WORD, token),
    _form("password", _NAME + _KEY + _IS + _WORD, token),
    _form("password", _NAME + f"(?:{_PASSWORD}|{_PASS})" + _ASSIGNED + _WORD, given),
    _form("password", _NAME + _PASSWORD + rf"(?:{_IS}| (?=[\"'“]))" + _WORD, in_sentence),
    _form("password", _NAME + _PASSWORD + rf"(?::\s{{0,3}}\n\s{{0,8}}| )(?P<secret>{_REST}{{6,200}})", odd),
    _form("password", rf"(?<![\w-])--(?:\w{{1,20}}-)?(?:{_PASSWORD}|{_KEY}) (?P<secret>[^\s\"'-][^\s\"']{{3,200}})"),
    _form("password", r"(?i:(?<![a-z])(?:pin|otp|cvc|cvv)2?)(?: is |[ \t]?[:=][ \t]?)(?P<secret>\d{3,8})(?![\w.,])"),
    _form(
        "e-mail",
        rf"(?<![{_LETTER}0-9._%+-])[{_LETTER}0-9._%+-]{{1,64}}(?:['’][{_LETTER}0-9._%+-]{{1,64}})?"
        rf"@(?!\dx\.)(?:[{_LETTER}0-9-]{{1,63}}\.){{1,8}}[{_LETTER}]{{2,24}}(?![{_LETTER}0-9])",
    ),
    _form("account", _START + _everywhere(r"[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]){11,31}"), account),
    *(_cards(groups) for groups in GROUPS),
    _form("card", _NUMBER + r"\d{13,19}(?!\w|\.\d|-\w{5})", card),
    _form("number of a person", r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
    _form("phone", rf"(?<![\w+.])\+{_ABROAD}(?!\d)"),
    _form("phone", rf"(?<![\w.,-])00{_ABROAD}(?!\d)"),
    _form(
        "phone",
        rf"{_NUMBER}(?:1[ .-]?)?(?:\({_AREA}\) ?{_AREA}[ .-]|{_AREA}-{_AREA}-)\d{{4}}(?![\d.-]?\d)",
    ),
    _form(
        "phone",
        rf"{_NUMBER}(?=(?:1[ .-]?)?\d{{3}}\.\d{{3}}\.){_NO_VERSION}(?:1[ .-]?)?{_AREA}\.{_AREA}\.\d{{4}}"
        rf"(?![\d.-]?\d){_NO_PRERELEASE}",
    ),
    _form(
        "phone",
        r"(?<![\w.,-])" + _everywhere(r"\(?0[1-9]\d{1,3}\)?[ /-]\d{3,8}(?:[ -]\d{2,4}){0,2}(?!\d)"),
        domestic,
    ),
    _form(
        "phone",
        _CALLED + r"(?P<secret>\(?\d{3}\)?[ .-]?\d{3}[ .-]?\d{4}|0[1-9](?:[ ./-]?\d){7,9}|1[3-9]\d{9}|\d{3}-\d{4})"
        r"(?!\d|[ .-]\d)",
    ),
)
"""All forms; the first form that matches a text decides its kind."""
