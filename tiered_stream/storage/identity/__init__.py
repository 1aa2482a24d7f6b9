"""Identities with which requests to the clouds are authorized, and their access tokens.

Files that other packages import:

- `access_tokens`: access tokens of Azure's and Google's identities: requested from a token service
- `azure_identity`: identity with which requests to Azure Blob Storage are authorized, for obstore and deltalake
- `credential_process`: time limit of the programs that print AWS credentials (`credential_process` of a profile)
- `google_identity`: identity with which requests to Google Cloud Storage are authorized, for obstore and deltalake

Files of this package alone:

- `token_request`: access tokens of cloud identities, and the requests for them
"""
