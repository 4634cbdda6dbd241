-- stepwell: compatible from 6
-- Functions, views, settings and comments are replaced after this file.

-- It has a new parameter and a new column in its result.
drop function if exists stepwell.promote(integer);
