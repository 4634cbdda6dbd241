-- stepwell: compatible from 6
-- Functions only.
-- Its second parameter has another name.
drop function if exists stepwell.unique_text(text, text, text);
