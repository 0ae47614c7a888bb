"""Texts that must stay text in every output: on the page, in Markdown, CSV and LaTeX."""

SCRIPT = "<script>alert(1)</script>"
HTML = (
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</script><script>alert(1)</script>",
    "</title></style><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'>",
    "&lt;img src=x onerror=alert(1)&gt;",
    "\u2028alert(1)\u2029<!--<script>",
)
PAYLOADS = (
    *HTML,
    # Markdown
    "![x](http://evil.example/x.png)",
    "[x](javascript:alert(1))",
    "[evil]: http://evil.example 'x'",
    "![evil][evil] [evil][] [evil]",
    "<img src=http://evil.example/x.png>",
    "<http://evil.example>",
    "\\![x]\\(http://evil.example)",
    "a | b\n\n[evil]: http://evil.example",
    # tables of Excel and LibreOffice
    "=1+1",
    "=cmd|' /C calc'!A0",
    "+1",
    "-1+1",
    "@SUM(A1)",
    # LaTeX
    "\\input{/etc/passwd}",
    "$\\immediate\\write18{ls}$",
    "a & b \\\\ c",
    "% rest",
)
