"""Commands: one public function each, exported by `nsys_pp`."""
