// What the conformance suite finds wrong with our gateway, by version, scenario and check, each with the reason. Every other check must
// pass, and these must fail: a list that is longer than the truth would hide the next defect.

/** How many scenarios there are: fewer would be a suite that did not run. */
export const SCENARIOS = { "2025-11-25": 32, "2026-07-28": 40 };

export const EXPECTED = {
  "2025-11-25": {},
  "2026-07-28": {
    // This version has no `ping`. Clients such as FastMCP go on sending it, and are answered.
    "server-stateless": ["sep-2575-http-server-method-not-found-404-ping"],
    // A tool may ask for arguments to be repeated in headers, for what routes requests by them. We route by none of them, and do not
    // compare them with the body.
    "http-custom-header-server-validation": [
      "sep-2243-server-reject-invalid-param-chars",
      "sep-2243-server-reject-param-mismatch",
      "sep-2243-server-validate-param-match",
    ],
  },
};
