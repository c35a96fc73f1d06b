"""Uses the embedded S3 endpoint through boto3. Arguments: endpoint, access key, secret key and bucket."""

import hashlib
import io
import os
import sys
import urllib.error
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, access_key, secret_key, bucket = sys.argv[1:]
s3 = boto3.client(
    "s3",
    endpoint_url=endpoint,
    aws_access_key_id=access_key,
    aws_secret_access_key=secret_key,
    region_name="us-east-1",
    config=Config(proxies={}, signature_version="s3v4", s3={"addressing_style": "path"}),
)
web = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def refused(code, call, **arguments):
    """The call must fail with this code."""
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}"
    else:
        raise AssertionError(f"{code} expected")


def read(key, **arguments):
    return s3.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


# Small objects, with every checksum that the client supports without additional packages.
for algorithm in ["CRC32", "SHA1", "SHA256"]:
    s3.put_object(Bucket=bucket, Key="a", Body=b"hello", ChecksumAlgorithm=algorithm)
s3.put_object(Bucket=bucket, Key="dir/ä b", Body=b"", ContentType="text/plain", Metadata={"k": "v"})
assert read("a") == b"hello"
assert read("a", Range="bytes=1-3") == b"ell"
assert read("a", Range="bytes=-2") == b"lo"
head = s3.head_object(Bucket=bucket, Key="dir/ä b")
assert (head["ContentLength"], head["ContentType"], head["Metadata"]) == (0, "text/plain", {"k": "v"})

# Conditions and checksums.
refused("PreconditionFailed", s3.put_object, Bucket=bucket, Key="a", Body=b"x", IfNoneMatch="*")
wrong = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
refused("BadDigest", s3.put_object, Bucket=bucket, Key="b", Body=b"x", ChecksumSHA256=wrong)
refused("NoSuchKey", s3.get_object, Bucket=bucket, Key="b")
refused("NoSuchBucket", s3.list_objects_v2, Bucket="not-there")
refused("NotImplemented", s3.put_object, Bucket=bucket, Key="a", Body=b"x", IfMatch='"tag"')
refused("InvalidRange", s3.get_object, Bucket=bucket, Key="a", Range="bytes=5-9")
assert read("a") == b"hello"

# Parts, in parallel, as the transfer manager sends them.
large = os.urandom(21 * 1024 * 1024 + 7)
config = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=6 << 20)
s3.upload_fileobj(io.BytesIO(large), bucket, "large", Config=config)
back = io.BytesIO()
s3.download_fileobj(bucket, "large", back, Config=config)
assert hashlib.sha256(back.getvalue()).digest() == hashlib.sha256(large).digest()

# Copies.
s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "large"})
assert s3.head_object(Bucket=bucket, Key="copy")["ContentLength"] == len(large)
source = {"Bucket": bucket, "Key": "a"}
refused("PreconditionFailed", s3.copy_object, Bucket=bucket, Key="copy", CopySource=source, IfNoneMatch="*")

# These are presigned URLs.
url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a"}, ExpiresIn=60)
assert web.open(url).read() == b"hello"
url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "up"}, ExpiresIn=60)
assert web.open(urllib.request.Request(url, data=b"sent", method="PUT")).status == 200
assert read("up") == b"sent"
try:
    web.open(url)
except urllib.error.HTTPError as error:
    assert error.code == 403, error.code
else:
    raise AssertionError("a URL for PUT must not GET")

# Lists, deletions, and a wrong secret key.
pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
assert keys == ["a", "copy", "dir/ä b", "large", "up"], keys
for key in keys:
    s3.delete_object(Bucket=bucket, Key=key)
assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
stranger = boto3.client(
    "s3",
    endpoint_url=endpoint,
    aws_access_key_id=access_key,
    aws_secret_access_key="wrong",
    region_name="us-east-1",
    config=Config(proxies={}, signature_version="s3v4", s3={"addressing_style": "path"}),
)
refused("SignatureDoesNotMatch", stranger.list_objects_v2, Bucket=bucket)
print("ok")
