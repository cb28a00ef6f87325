"""Names of files that look as if they held a secret. They are listed, and not saved.

A rescue ends in a ref, and refs are pushed, fetched and kept. What is matched is the name alone: a key in a file called
notes.txt is saved like any other.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".envrc",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.asc", "*.gpg",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*",
    ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".pgpass", ".dockercfg",
    "credentials", "credentials.*", "*-credentials.json", "*_credentials.json", "client_secret*.json",
    "secrets", "secrets.*", "*.secret", "*.secrets", "secret.*", "service-account*.json", "*.tfvars",
    "*token.txt", "*token.json", "*password*.txt", "kubeconfig",
)  # fmt: skip
# Folders in which everything is one.
SECRET_FOLDERS = (".ssh", ".aws", ".gnupg", ".kube", ".docker")
# What is written to be shared, and public halves.
HARMLESS = ("*.example", "*.sample", "*.template", "*.dist", "*.pub", "*.tfvars.example")


def looks_secret(path: str) -> bool:
    """Whether a path, relative to the worktree, has a name that secrets have."""
    *folders, name = path.lower().split("/")
    if any(fnmatchcase(name, pattern) for pattern in HARMLESS):
        return False
    return any(folder in SECRET_FOLDERS for folder in folders) or any(
        fnmatchcase(name, pattern) for pattern in SECRET_NAMES
    )
