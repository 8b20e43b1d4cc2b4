"""What a policy will return and cost, estimated from logged episodes alone."""
