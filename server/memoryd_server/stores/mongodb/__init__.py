"""The store on MongoDB (design sections 5 and 8)."""
