"""Every intervention of the papers on one grid."""
