"""A program that uses the API by generated classes. test/client/generated.test.ts generates and runs them."""

import io
import json
import sys

import httpx
from api import AuthenticatedClient
from api.api.api_keys import create_api_key, get_api_key
from api.api.files import delete_file, get_file_metadata, list_files, set_transcript, sign_file, upload_file
from api.api.users import create_user, get_user
from api.models import CreateApiKeyBody, CreateUserBody, Error, Scope, UploadFileBody
from api.types import File

url, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key)

sent = File(io.BytesIO(b"hello"), file_name="note.txt", mime_type="text/plain")
file = upload_file.sync(client=client, body=UploadFileBody(file=sent, properties='{"folder":"a/b"}')).data
listed = list_files.sync(client=client, limit=5, folder="a/b").data
content = httpx.get(sign_file.sync(file.field_id, client=client, expires_in=60).signed_url).text
vtt = File(io.BytesIO(b"WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"))
language = set_transcript.sync(file.field_id, client=client, body=vtt, language="en").data.language
has_peaks = get_file_metadata.sync(file.field_id, client=client).data.peaks is not None
is_deleted = delete_file.sync(file.field_id, client=client).status
missing = get_file_metadata.sync(file.field_id, client=client)
user = create_user.sync(client=client, body=CreateUserBody(email="ada@example.com", password="correct horse battery"))
email = get_user.sync(user.data.field_id, client=client).data.email
reader = create_api_key.sync(client=client, body=CreateApiKeyBody(name="Reader", scopes=[Scope.FILESREAD])).data
scopes = get_api_key.sync(reader.id, client=client).data.scopes

print(
    json.dumps(
        {
            "folder": file.folder,
            "isListed": any(one.field_id == file.field_id for one in listed),
            "content": content,
            "language": language,
            "hasPeaks": has_peaks,
            "isDeleted": is_deleted,
            "missing": 404 if missing.code == "not_found" else missing.code,
            "email": email,
            "isKey": scopes == [Scope.FILESREAD],
        }
    )
)
