"""A bank whose clients move money in transactions while its server is killed."""
