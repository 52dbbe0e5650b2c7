"""Secrets and personal data in a text: what is found, what only looks like it, and how long it takes."""

import random
import time

import pytest

from curation.private import Secrets, find, without
from curation.redaction import COORDINATES

KEYS = {
    "sk-proj-abcdefghij0123456789": "key",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "key",
    "AKIAIOSFODNN7EXAMPLE": "key",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv": "key",
    "xoxb-123456789012-abcdefghijkl": "key",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "key",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END": "key",
    "ada.lovelace+x@mail.example.co.uk": "e-mail",
    "4111 1111 1111 1111": "card",
    "5500-0000-0000-0004": "card",
    "378282246310005": "card",
    "GB29 NWBK 6016 1331 9268 19": "account",
    "DE89370400440532013000": "account",
    "+49 (0)30 1234-5678": "phone",
    "(415) 555-2671": "phone",
    "415-555-2671": "phone",
    "123-45-6789": "number of a person",
}


@pytest.mark.parametrize(("secret", "kind"), KEYS.items())
def test_a_secret_is_found_wherever_it_stands_and_the_rest_stays(secret: str, kind: str) -> None:
    for before, after in (("", ""), ("it is ", " THEN go"), ('"', '",'), ("(", ")"), ("x: ", ".\n")):
        text, kinds = without(before + secret + after)
        assert (text, kinds) == (f"{before}[redacted {kind}]{after}", [kind])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('Enter the username "ada" and the password "h3rl0ck".', 'password "[redacted password]".'),
        ("password: correct-horse", "password: [redacted password]"),
        ("api_key=Zk91AbQx", "api_key=[redacted password]"),
        ("https://ada:s3cret@host/x", "https://ada:[redacted password]@host/x"),
        ("Authorization: Bearer abcdef0123456789", "Bearer [redacted key]"),
    ],
)
def test_what_is_called_a_secret_is_one(text: str, left: str) -> None:
    assert without(text)[0].endswith(left)


HEX = "0123456789abcdef0123456789abcdef"
CALLED = {
    "DB_PASSWORD={}": "Hunter2x!",
    "export AWS_SECRET_ACCESS_KEY={}": f"wJalr/{HEX}",
    "password: {}": "hunter",
    "password={}": "hunter",
    "PASSWORD:\t{}": "hunter",
    "Password:\n{}": "hunter2",
    "log in with password {} and go": "h3rl0ck",
    "the password is {}": "Swordfish",
    "userPassword: {}": "hunter",
    "'password': '{}'": "hunter two, three",
    r"{{\"password\": \"{}\"}}": "hunter2",
    "client_secret={}": "abcdefghijkl",
    "token: {}": "abcd1234efgh5678",
    "https://x.org/cb?access_token={}": "abc123def456",
    "AccountName=a;AccountKey={};": f"{HEX}==",
    "--token {}": "hunter",
    "PIN: {}": "1234",
    "密码：{}": "hunter",
    "postgres://u:{}@h": "p4:ss",
    "mysql://u:{}@db.example.com/x": "p@ss",
    "redis://:{}@h": "pw",
    "curl -s -u ada:{} https://example.com": "hunter",
    "curl --user 'ada:{}' https://example.com": "hunter",
    "PGPASSWORD={} psql -h db": "hunter2x",
    "MYSQL_PWD={} mysql -u root": "hunter",
    "-e RABBITMQ_DEFAULT_PASS={} rabbitmq:3": "hunter",
    'DB_PASS: "{}"': "hunter",
    "ansible_ssh_pass={}": "hunter",
    "sshpass -p {} ssh ada@host": "secret",
    "sshpass -p'{}' scp a ada@host:": "$wordfish two",
    "mysql -p{}": "secret",
    "mysql -p'{}' -e 'select 1'": "hunter two",
    "mysqldump --single-transaction -u root -p{} shop": "hunter2",
    'docker exec mysql mysql -u root -e "select 1" -P 3306 -p{} shop': "hunter",
    "mariadb-dump shop -uroot -p{}": "hunter",
    "Secret access key\n{}": f"wJalr/{HEX}+K",
    "Secret access key\t{}": f"wJalr/{HEX}+K",
    "AWS Secret Access Key [None]: {}": f"wJalr/{HEX}+K",
    "?X-Amz-Expires=60&X-Amz-Security-Token={}&X-Amz-Date=1": f"IQoJb3JpZ2lu%2F{HEX}%3D",
}
SIGNATURE = f"{HEX}aB%2Fd%2Bf9hIj%3D"
HEADERS = {
    "Authorization: token {}": "abcdef0123456789",
    '"Authorization": "ApiKey {}"': "abcdef0123456789",
    "authorization: {}": "abcdef0123456789",
    "Set-Cookie: sid={}; Path=/; HttpOnly": "s%3Aabc123def",
    "Cookie: {}": "lang=en; sid=1234567890",
    '{{"auths": {{"registry.example.com": {{"auth": "{}"}}}}}}': "YWRhOmgzcmwwY2s=",
    r"{{\"auth\":\"{}\"}}": "YWRhOmgzcmwwY2s=",
    "//registry.example.com/:_auth={}": "YWRhOmgzcmwwY2s=",
    "https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature={}": HEX * 2,
    "https://storage.googleapis.com/b/x?X-Goog-Signature={}&x=1": HEX * 16,
    "https://a.blob.core.windows.net/b/x?sv=2022-11-02&sr=b&se=2026-01-01T00%3A00%3A00Z&sp=r&sig={}": SIGNATURE,
    "https://a.blob.core.windows.net/b?sig={}&sp=rl&amp;se=2026-01-01&sr=c": SIGNATURE,
    r"a.logic.azure.com/workflows/x?api-version=1&sp=%2Frun&sv=1.0\u0026sig={}": f"{HEX}aB_d-f9hIjk",
    "SharedAccessSignature sr=a.servicebus.windows.net&sig={}&se=1700000000&skn=send": SIGNATURE,
}


@pytest.mark.parametrize(("around", "secret"), HEADERS.items())
def test_a_key_is_found_in_the_headers_of_a_request(around: str, secret: str) -> None:
    assert without(around.format(secret)) == (around.format("[redacted key]"), ["key"])


@pytest.mark.parametrize("secret", ["h3rl0ck", "ｈ３ｒｌ０ｃｋ", "h3r\u200bl0ck"])
def test_a_known_password_is_found_however_wide_it_is_written(secret: str) -> None:
    text = f"é {secret}, 4111 1111 1111 1111"
    known = Secrets(frozenset({"h3rl0ck"}))
    assert without(text, known)[0] == "é [redacted password], [redacted card]"
    assert without(text, known, [(len(text) - 19, len(text))])[0] == "é [redacted password], 4111 1111 1111 1111"


@pytest.mark.parametrize(("around", "secret"), CALLED.items())
def test_a_password_is_found_by_what_calls_it_one(around: str, secret: str) -> None:
    assert without(f"then {around.format(secret)}") == (f"then {around.format('[redacted password]')}", ["password"])


FORMS = {
    f"sk_live_{HEX}": "key",
    f"rk_live_{HEX}": "key",
    f"SG.{HEX[:22]}.{HEX}": "key",
    f"pypi-AgEIcHlwaS5vcmc{HEX}": "key",
    f"shpat_{HEX}": "key",
    f"dapi{HEX}": "key",
    f"dop_v1_{HEX}{HEX}": "key",
    f"ya29.{HEX}": "key",
    f"hf_{HEX}": "key",
    f"hooks.slack.com/services/T0000/B0000/{HEX}": "key",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{HEX}\n-----END PGP PRIVATE KEY BLOCK-----": "key",
    "gb29 nwbk 6016 1331 9268 19": "account",
    "de89370400440532013000": "account",
    "FR14 2004 1010 0505 0001 3M02 606": "account",
    "3782 822463 10005": "card",
    "3056 930902 5904": "card",
    "6011111111111117": "card",
    "2223003122003222": "card",
    "1-800-356-9377": "phone",
    "0049 30 12345678": "phone",
    "00491701234567": "phone",
    "020 7946 0958": "phone",
    "(020) 7946 0958": "phone",
    "+33 6 12 34 56 78": "phone",
    "415.555.2671": "phone",
    "1.415.555.2671": "phone",
    "+1.415.555.2671": "phone",
    "+1 415.555.2671": "phone",
    "(415) 555.2671": "phone",
    "jörg@müller.de": "e-mail",
    "m.müller@web.de": "e-mail",
    "marie.curie@université.fr": "e-mail",
    "o'brien@example.com": "e-mail",
    "анна@пример.рф": "e-mail",
    f"bot123456789:ABC-{HEX[:31]}": "key",
    f"987654321:AAE{HEX}": "key",
    f"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{HEX[:27]}": "key",
    f"SK{HEX}": "key",
    f"ATATT3xFfGF0{HEX}=1A2B3C4D": "key",
    f"key-{HEX}": "key",
    f"{HEX}-us14": "key",
    f"sq0atp-{HEX[:22]}": "key",
    f"EAACEdEose0cBA{HEX}": "key",
    f"lin_api_{HEX}": "key",
    f"xai-{HEX}": "key",
    f"pnu_{HEX}a1B2": "key",
    f"pnb_{HEX}a1B2": "key",
    f"wandb_v1_{HEX}_{HEX}_aB3dE6gH9jK": "key",
    f"ntn_12345678901{HEX}abc": "key",
    f"secret_{HEX}aB3dE6gH9jK": "key",
    f"pplx-{HEX}aB3dE6gH9jK2mN5p": "key",
    f"glsa_{HEX}_0a1b2c3d": "key",
    f"glc_eyJvIjoi{HEX}/+ab==": "key",
    f"glcbt-64_{HEX[:20]}": "key",
    f"glagent-{HEX}{HEX[:18]}": "key",
    f"gloas-{HEX}{HEX}": "key",
    f"glft-{HEX[:20]}": "key",
    f"glimt-{HEX[:25]}": "key",
    f"glsoat-{HEX[:20]}": "key",
    f"glffct-{HEX[:20]}": "key",
    f"ops_eyJ{HEX * 10}==": "key",
    f"PMAK-{HEX[:24]}-{HEX}ab": "key",
    f"pul-{HEX}01234567": "key",
    f"sntryu_{HEX}{HEX}": "key",
    f"sntrys_eyJpYXQiOjE2{HEX}LCJyZWdpb25fdXJs{HEX}=_{HEX}aB3dE6gH9jK": "key",
    f"rubygems_{HEX}{HEX[:16]}": "key",
    f"NRAK-{'ABCDEFGH1' * 3}": "key",
    f"NRJS-{HEX[:19]}": "key",
    f"NRII-{HEX[:20]}-_{HEX[:10]}": "key",
    f"HRKU-AA{HEX}_{HEX[:25]}": "key",
    "HRKU-01234567-89ab-cdef-0123-456789abcdef": "key",
    f"xkeysib-{HEX}{HEX}-aB3dE6gH9jK2mN5p": "key",
    f"xsmtpsib-{HEX}{HEX}-aB3dE6gH9jK2mN5p": "key",
    f"dp.pt.{HEX}aB3dE6gH9jK": "key",
    f"dp.st.{HEX}aB3dE6gH9jK": "key",
    f"dp.st.prd_eu.{HEX}aB3dE6gH9jK": "key",
    f"dp.audit.{HEX}aB3dE6gH9jK": "key",
    f"LTAI{HEX[:20]}": "key",
    "LTAIabcDEF0123456": "key",
    f"aB~8Q~{HEX}_-": "key",
    f"ABSK{HEX * 4}==": "key",
    f"bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t{HEX * 3}=": "key",
    "ABIAIOSFODNN7EXAMPLE": "key",
    "ACCAIOSFODNN7EXAMPLE": "key",
    f"patAbCdEfGhIjKlMn.{HEX}{HEX}": "key",
    f"AKCp{HEX}{HEX}aB3dE": "key",
    f"cmVmdGtu{HEX}{HEX[:24]}": "key",
    f"api_org_{'AbCdEfGhIjKlMnOpQ' * 2}": "key",
    f"sgp_{HEX}01234567": "key",
    f"sgp_local_{HEX}01234567": "key",
    f"sgp_{HEX[:16]}_{HEX}01234567": "key",
    f"fm1r_{HEX * 4}=": "key",
    f"fm2_{HEX * 4}": "key",
    f"fo1_{HEX}aB3dE6gH9jK": "key",
    f"AbCdEfGhIjKlMn.atlasv1.{HEX}{HEX}": "key",
    f"dt0c01.ABCDEFGHIJKLMNOPQRSTUVWX.{HEX}{HEX}": "key",
    f"figd_{HEX}_aB3dE6g": "key",
    f"sbp_{HEX}01234567": "key",
    f"sb_secret_{HEX[:22]}_01234567": "key",
    f"tvly-dev-{HEX}": "key",
    f"hvb.{HEX * 5}": "key",
    f"webhook.office.com/webhookb2/{HEX}@{HEX}/IncomingWebhook/{HEX}/{HEX}": "key",
    "４１１１ １１１１ １１１１ １１１１": "card",
    "ａｄａ＠ｅｘａｍｐｌｅ．ｃｏｍ": "e-mail",
    "sk-proj-abcd\u200befghij0123456789": "key",
    "ada\ufeff@exam\u200bple.com": "e-mail",
}
DOTTED = [
    "version 415.555.2671, Version: 415.555.2671, v 415.555.2671, v415.555.2671, build 415.555.2671",
    "firmware = 415.555.2671, Rev. 415.555.2671, release #415.555.2671, version 1.415.555.2671, version/415.555.2671",
    "415.555.2671-rc1, 415.555.2671b2, 415.555.2671-beta.3, 415.555.2671.dev0, 415.555.2671.1, 3.415.555.2671",
    "120.0.6099.109, 10.0.19045.3693, 31.0.15.3758, 192.168.100.200, 255.255.255.0, 2.415.555.2671",
    "3.1415926535, 415.5552671, 1.234.567.890, 123.456.7890, 012.345.6789, 415.155.2671, 911.555.2671, 415.911.2671",
    "$415.555.2671.50, 415.555.26710, 2026.11.23.2035",
]


@pytest.mark.parametrize(("secret", "kind"), FORMS.items())
def test_a_form_is_found_alone_and_in_words(secret: str, kind: str) -> None:
    for before, after in (("", ""), ("it is ", ", then"), ('"', '"'), ("\t", "\n")):
        assert without(before + secret + after) == (f"{before}[redacted {kind}]{after}", [kind])


@pytest.mark.parametrize("text", DOTTED)
def test_dotted_numbers_of_versions_addresses_and_amounts_are_no_phones(text: str) -> None:
    assert without(text) == (text, [])


@pytest.mark.parametrize("before", ["Denver ", "my driver ", "tel. ", "TV ", "release the dog, ", "v. ada, "])
@pytest.mark.parametrize("after", ["", ".", " x12", ", b", " - a friend", " beta"])
def test_a_dotted_phone_is_found_after_and_before_words_that_only_look_like_those_of_versions(
    before: str, after: str
) -> None:
    assert without(f"{before}415.555.2671{after}") == (f"{before}[redacted phone]{after}", ["phone"])


@pytest.mark.parametrize("after", [" 12/28", " 123", " 1228", ", 12/28", "-123", " 4111"])
@pytest.mark.parametrize("card", ["4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111", "378282246310005"])
def test_a_card_is_found_before_its_expiry_and_after_other_numbers(card: str, after: str) -> None:
    assert without(f"4000 {card}{after}") == (f"4000 [redacted card]{after}", ["card"])


@pytest.mark.parametrize("word", ["tel: ", "call ", "Phone number is ", "fax ", "mobile: "])
def test_three_numbers_are_a_phone_where_they_are_called_one(word: str) -> None:
    assert without(f"{word}881 857 6290")[0] == f"{word}[redacted phone]"
    assert without("Basic dXNlcjpwYXNz")[0] == "Basic [redacted key]"


def _row(draw: random.Random, *below: int) -> str:
    return " ".join(str(draw.randrange(one)) for one in below)


LOOKALIKES = {
    "pixels of a box": (lambda draw: f"<bbox>{_row(draw, 1920, 1080, 1920, 1080)}</bbox>", 0.0),
    "pixels of a larger screen": (lambda draw: _row(draw, 3840, 2160, 3840, 2160), 0.01),
    "milliseconds": (lambda draw: str(draw.randint(15 * 10**11, 19 * 10**11)), 0.0),
    "microseconds": (lambda draw: str(draw.randint(15 * 10**14, 19 * 10**14)), 0.0),
    "ids of 16 digits": (lambda draw: str(draw.randint(10**15, 10**16)), 0.04),
    "four years": (lambda draw: " ".join(str(draw.randint(1900, 2040) + at) for at in range(4)), 0.0),
    "a calendar's row": (lambda draw: " ".join(str((draw.randrange(31) + at) % 31 + 1) for at in range(7)), 0.0),
    "a month": (lambda draw: " ".join(map(str, range(1, draw.choice([29, 31, 32])))), 0.0),
    "three numbers": (lambda draw: f"{_row(draw, 1000, 1000)} {draw.randint(1000, 9999)}", 0.001),
    "versions": (lambda draw: ".".join(_row(draw, 300, 300, 300, 9999).split()), 0.0),
    "hashes": (lambda draw: f"{draw.getrandbits(256):064x}", 0.001),
}
"""What looks like a number of somebody: how it is made, and the share that may be taken for one."""


@pytest.mark.parametrize("name", LOOKALIKES)
def test_coordinates_times_ids_and_calendars_are_nobody_s_numbers(name: str) -> None:
    make, most = LOOKALIKES[name]
    draw = random.Random(0)
    assert sum(bool(find(make(draw))) for _ in range(2000)) <= most * 2000


@pytest.mark.parametrize(
    "text",
    [
        "password: ******, password: ••••••••, password=<your password>, password: ${DB_PASSWORD}, password: None",
        "[redacted password] password: [redacted password] token: [redacted password]",
        "Enter your password to log in. Forgot password? Password:\nSign in. Username:\nada",
        "The token is required. max_tokens: 4096, token: 12. Unexpected token: EndOfFile. Secret to success.",
        "basic authentication, basic settings, bearer authentication, npm_config_registry_url, sk-learn-one-of-many",
        "881 857 6290, the call at 1920 1080 2020, scroll +120 -340, icon@2x.png, UTC+0200, 000012345678",
        "0010 0020 0030 0040, 0123 0124 0125, 01 02 03 04 05 06 07, 000-12-3456, 900-12-3456",
        "http://localhost:8080?mail=a@b, http://localhost:8080/x@y",
        "px20 click the button now and then, at 10 gb29 or gb29 nwbk",
        "Click the password field and press enter. Password Field. The password is required.",
        "4111 1111 1111 1112, 1234567890123, 0000 0000 0000 0000",
        "click(start_box='(512,340)') at 2026-11-23 13:35:20, 0.1234567890123456",
        "GB29 NWBK 6016 1331 9268 18",
        "7b1f0c9e4111111111111111aa",
        "@here, a@b, version 1.2.3.4, 10.0.0.1:8080",
        "Task 415 555 of 2671",
        "[redacted e-mail] [redacted number of a person]",
        "请发送到 @ada, 请a@b, it's @home, l'été@midi, don't@me, 'x'@y",
        "Authorization: required. Authorization: Basic. authorization: granted, see page 12",
        "Set-Cookie: theme=dark; Path=/. Cookie: lang=en; theme=light. Accept the cookie: yes=1. Cookie policy",
        "curl -u $USER:$PASSWORD https://x.org, curl -u ada https://x.org, curl -s http://localhost:8080",
        "SKU0123456789, SKIP, EAA meeting, ATATT, key-value, key-0123, sq0, lin_api_, xai-explainable-models",
        "MyModule.models.Thing, primary-key-0123456789abcdef0123456789abcdef, 12345678:30, 1700000000:abc",
        "pul-request, pul-0123, patch.cleanup, pat.cleanup, ops_total, ops_eyJ, sgp_region, sgp_local_time, figd_0123",
        "dp.st. is short, dp.pt.width, dp.st.prd.name, hvb.width, LTAI2024, LTAIRLINES, AKCp, ABSKETCH, glc_eyJ, fm2_a",
        "glc_map/data/landcover/global/in/2000, pplx-70b-online, glimt-av-en-sommar-i-sverige, ntn_of_the_day_12345",
        "wandb_v1_migration_of_the_configuration, tvly-search-integration-tests, sb_secret_key_from_environment",
        "secret_sharing_scheme_2, api_org_membershipsettings, api_org_id_0123456789, rubygems_version_3, NRAK-1",
        "state.atlasv1.json, dt0c01.x, pnu_id, pnb_0123456789, figd_layer_of_the_drawing_that_is_shown, 8Q~x, x.8Q~",
        "mysql -port 3306, mysql -P3306, mysql -p -u root, mysql -u root -p shop, mysql | grep -pattern",
        'docker run mysql -p3306:3306 -p127.0.0.1:3307:3306, mysql -p$PASSWORD, mysql -p"$(cat x)", mysql; ls -parents',
        "sshpass -p $PASS, sshpass -p \"$(cat x)\", sshpass -p '${PASS}', sshpass -e ssh host, sshpass -f file",
        "sig=1, ?sv=1&sig=1, ?se=a&sig=short&sp=r, ?v=0123456789abcdef&sig=0123456789abcdef, X-Amz-Signature=0123",
        "?a=1&sig=0123456789abcdef0123456789abcdef0123456789abcdef, se=x",
        "?se=x, sig=0123456789abcdef0123456789abcdef0123456789abcdef",
        'auth: required, auth: OAuth2, auth=basic, "auth": "password", author: abcdefgh, proxy_pass: hidden, bypass=1',
        "render_pass: depth, RENDER_PASS=shadow, DB_PASS=, user_pass = split(x), db_passes: 1234, PGPASSWORD=$PGPASS",
        "Secret access key\nShow the key. Secret access key: hidden. AKIA, 0123456789abcdef0123456789abcdef01234567",
        "\u200b\u200b, １２３, ｗｉｄｅ，１００％",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert without(text) == (text, [])


def test_a_known_password_is_found_in_any_words() -> None:
    assert without("type h3rl0ck, then h3rl0ck again", Secrets(frozenset({"h3rl0ck"}))) == (
        "type [redacted password], then [redacted password] again",
        ["password", "password"],
    )


def test_a_short_password_that_is_a_word_is_taken_out_where_it_was_typed_alone() -> None:
    text = "I open it. type(content='open\\n') then open the 1234 of 12345"
    left, kinds = without(text, Secrets(frozenset({"open", "1234", "cat"})))
    assert left == "I open it. type(content='[redacted password]\\n') then open the [redacted password] of 12345"
    assert kinds == ["password", "password"]


def test_numbers_in_what_is_set_apart_stay_and_keys_do_not() -> None:
    text = "4111 1111 1111 1111 sk-proj-abcdefghij0123456789 415-555-2671"
    assert without(text, apart=[(0, len(text))]) == (
        text.replace("sk-proj-abcdefghij0123456789", "[redacted key]"),
        ["key"],
    )
    assert without(text, apart=[(0, 19)])[1] == ["key", "phone"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password: 4111 1111 1111 1111.", "password: [redacted password][redacted card]."),
        ("token: sk-proj-abcdefghij0123456789/x1", "token: [redacted key][redacted password]"),
        ("https://ada:s3cret@db.example.com/x", "https://ada:[redacted password]@db.example.com/x"),
        ("cls_token = AddedToken2(x), facebook/hf-seamless-m4t-medium", None),
    ],
)
def test_of_two_forms_that_overlap_nothing_is_left(text: str, left: str | None) -> None:
    assert without(text)[0] == (text if left is None else left)


def test_what_was_redacted_once_is_not_redacted_again() -> None:
    once, _ = without("; ".join(KEYS))
    assert without(once) == (once, []) and find(once) == []


UNITS = """a|1|1 |a@|a.|-|AB12|ab12 |gb29 |gb29|://a:|://|password |password: |password=|password="|a@b.co |
eyJaaaaaaaa.|eyJaaaaaaaa-|-eyJaaaaaaaa|+1 (|+49 |0049 |020 7|call |call 4|tel number |call is  |-----BEGIN|
-----BEGIN PRIVATE KEY-----|-----BEGIN PRIVATE KEY-----a-|sk-|ghp_|SG.a.|basic |bearer a|--token |--a-|pin: 1|4111 |
4111-|415-|00|a_|aA|token=\\|token is |shpat_|<bbox>1 |click(1, |click(a="|curl |curl -u a|curl -u |
Set-Cookie: a=|Cookie: a=1; |; a=1|authorization: |authorization: a |a'|ä|é@|\u200b|１|1:|
M1|EAA|o'b@a.|a8Q~|8Q~|-a.8Q~|abcdefghijklmn.atlasv1.|ops_eyJ|-ops_eyJ|fm2_|dp.st.|dp.st.a.|ABSK|figd_|secret_|
webhook.office.com/webhookb2/|sntryu_|mysql |mysql -p|mysql -u |mysql -u a | -u a|mysql a -u |sshpass -p |sshpass -p"|
sv=1&|sv=1&a=|&se=1&sig=|sig=|sig=a&|&sig=a&amp;|sig=%2F|secret access key |secret access key [|AKIA0000000000000000 |
auth: |"auth": "|auth=YWRh|X-Amz-Signature=|db_pass=|PGPASSWORD=""".replace("\n", "").split("|")


@pytest.mark.parametrize("unit", [*UNITS, "\n", "password:\n"])
def test_a_text_made_to_be_slow_is_not(unit: str) -> None:
    started = time.process_time()
    find((unit * 30_000)[:30_000], apart=[one.span() for one in COORDINATES.finditer((unit * 30_000)[:30_000])])
    assert time.process_time() - started < 1


def test_random_texts_are_redacted_without_loss_of_what_lies_between() -> None:
    draw = random.Random(0)
    secrets = list(KEYS)
    for _ in range(200):
        parts = [
            draw.choice(secrets) if draw.random() < 0.4 else draw.choice(["wörds", "\n", "42", "ok."]) for _ in range(9)
        ]
        text, kinds = without(" | ".join(parts))
        shown = [f"[redacted {KEYS[one]}]" if one in KEYS else one for one in parts]
        assert text == " | ".join(shown) and kinds == [KEYS[one] for one in parts if one in KEYS]
