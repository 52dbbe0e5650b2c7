#!/usr/bin/env bash
# s3fs 2026.9.0 (fsspec 2026.9.0, aiobotocore 3.10.0, botocore 1.43.117) (PyPI), 2026-11-28.
# Guess: S3's answers to conditional writes have different exceptions: a lost write, a conflict that S3 asks to retry, and
#   a server that asks to slow down.
# What happens: a lost `If-None-Match` write is a FileExistsError, a lost `If-Match` write is EINVAL ("Invalid argument").
#   The conflict that AWS documents for both (409, ConditionalRequestConflict) is EIO ("Input/output error"), SlowDown is
#   EBUSY, and InternalError is EREMOTEIO. All texts except the conflict's leave out the code, which is in `__cause__`.
#   Code that decides by type, errno or text retries none of them, or all of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet s3fs==2026.9.0 fsspec==2026.9.0 aiobotocore==3.10.0 botocore==1.43.117
"$folder/venv/bin/python" - <<'PYTHON'
import errno
import sys

from botocore.exceptions import ClientError
from s3fs.errors import translate_boto_error

# the codes, messages and conditions of S3's API reference
answers = (
    ({"Code": "PreconditionFailed", "Message": "At least one of the pre-conditions you specified did not hold", "Condition": "If-None-Match"}, "FileExistsError", None),
    ({"Code": "PreconditionFailed", "Message": "At least one of the pre-conditions you specified did not hold", "Condition": "If-Match"}, "OSError", errno.EINVAL),
    ({"Code": "ConditionalRequestConflict", "Message": "The conditional request cannot succeed due to a conflicting operation against this resource."}, "OSError", errno.EIO),
    ({"Code": "SlowDown", "Message": "Please reduce your request rate."}, "OSError", errno.EBUSY),
    ({"Code": "InternalError", "Message": "We encountered an internal error. Please try again."}, "OSError", errno.EREMOTEIO),
)
changed = False
for answer, kind, number in answers:
    error = translate_boto_error(ClientError({"Error": answer}, "PutObject"))
    named = answer["Code"] in str(error)
    print(f"{answer['Code']:27} {answer.get('Condition', ''):14} {type(error).__name__} {errno.errorcode.get(error.errno, '-'):10} code in the text: {named}, in __cause__: {answer['Code'] in str(error.__cause__)}")
    changed |= (type(error).__name__, error.errno) != (kind, number)
sys.exit(changed)
PYTHON
