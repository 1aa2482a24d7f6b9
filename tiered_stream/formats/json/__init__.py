"""Decoder of JSON, by the rules of Spark's `from_json`.

Other packages use `json_schema` and `json_inference` (types of documents), and `json_text` (JSON for users).

    json_decoder        decoder of documents to a struct column
    json_kernels        documents whose meaning is certain
    json_text_kernels   strings, numbers, dates and timestamps in them
    exact_json          all other documents, one by one in Python
    json_text           parser to Python values, and writers of JSON
    json_inference      type of sampled documents
    json_schema         type of the documents of a JSON Schema
"""
