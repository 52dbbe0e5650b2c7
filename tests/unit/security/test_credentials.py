"""Credentials come from the environment and stay there."""

import pytest

from schemas.config import load_config
from schemas.failure import UsageError
from storage.address import resolve

SECRET = "sup3rs3cretvalue"


def test_credentials_stand_in_no_config_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "FLYWHEEL_DESK_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    config = load_config("laptop", ["lake.uri=s3://bucket/lake", "policy.server.url=http://localhost:8000/v1"])
    assert SECRET not in config.canonical()
    address = resolve(config.lake)
    assert SECRET not in address.uri and SECRET not in str(address)


@pytest.mark.parametrize(
    ("key", "address", "variable"),
    [
        ("openlineage.to", f"http://ada:{SECRET}@marquez:5000/api/v1/lineage", "OPENLINEAGE_API_KEY"),
        ("openlineage.to", f"https://marquez/api/v1/lineage?api_key={SECRET}", "OPENLINEAGE_API_KEY"),
        ("lake.endpoint", f"http://ada:{SECRET}@minio:9000", "AWS_SECRET_ACCESS_KEY"),
        ("lake.endpoint", f"ada:{SECRET}@minio:9000", "AWS_SECRET_ACCESS_KEY"),
        ("lake.uri", f"s3://ada:{SECRET}@bucket/lake", "AWS_SECRET_ACCESS_KEY"),
        ("lake.uri", f"s3://bucket/lake?X-Amz-Signature={SECRET}", "AWS_SECRET_ACCESS_KEY"),
        ("policy.server.url", f"https://{SECRET}@host/v1", "OPENAI_API_KEY"),
        ("policy.server.url", f"https://host/v1?a=b&access_token={SECRET}", "OPENAI_API_KEY"),
        ("traces.endpoint", f"https://host/v1/traces?key={SECRET}", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("judge.options.url", f"https://host/v1?password={SECRET}", "judge.options.key_variable"),
        ("think.options.endpoint.url", f"https://a:{SECRET}@host/v1", "think.options.endpoint.key_variable"),
        ("reflect.options.endpoint.url", f"https://host/v1?sig={SECRET}", "reflect.options.endpoint.key_variable"),
        ("cluster.address", f"ray://a:{SECRET}@head:10001", ""),
        ("policy.server.command", f"serve --port {{port}} --from https://a:{SECRET}@host/x", "OPENAI_API_KEY"),
    ],
)
def test_an_address_with_credentials_is_refused_by_its_key_and_names_the_variable_to_use(
    key: str, address: str, variable: str
) -> None:
    asked = {
        "judge": ["judge.kind=endpoint", "judge.options.model=m"],
        "think": ['think.thinkers=["endpoint"]', "think.options.endpoint.model=m"],
        "reflect": ['reflect.proposers=["endpoint"]', "reflect.options.endpoint.model=m"],
    }
    with pytest.raises(UsageError) as refused:
        load_config("laptop", [*asked.get(key.split(".")[0], []), f"{key}={address}"])
    assert f"`{key}`" in refused.value.problem and variable in refused.value.hint
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("openlineage.to", "http://marquez:5000/api/v1/lineage?tenant=me&max_tokens=3"),
        ("openlineage.to", "/data/me@home/lineage.jsonl"),
        ("lake.endpoint", "http://localhost:9000"),
        ("lake.uri", "s3://bucket/me@home/a:b@c"),
        ("lake.uri", "me@home"),
        ("policy.server.url", "http://[::1]:8000/v1"),
        ("cluster.address", "head:6379"),
    ],
)
def test_an_address_without_credentials_is_taken(key: str, address: str) -> None:
    load_config("laptop", [f"{key}={address}"])
