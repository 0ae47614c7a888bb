"""What every room uses: errors, types, schema, keys, files, seeding, metrics, hardware."""
