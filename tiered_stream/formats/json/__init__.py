"""Decoder of JSON, by the rules of Spark's `from_json`.

Other packages use `json_schema` and `json_inference` (types of documents), and `json_text` (JSON for users).

    json_decoder        decoder of documents to a struct column
    json_kernels        compiled functions that read documents whose meaning is certain
    json_text_kernels   compiled functions that read strings, numbers, dates and timestamps in documents
    exact_json          decoder of all other documents, one by one in Python
    json_text           parser of JSON to Python values, and writers of JSON
    json_inference      Arrow type of sampled documents
    json_schema         Arrow type of the documents of a JSON Schema
"""
