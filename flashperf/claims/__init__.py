"""The claims of the two source documents, each with how it is tested here and what came out."""
