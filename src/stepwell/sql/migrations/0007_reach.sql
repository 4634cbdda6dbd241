-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

-- It has another parameter now.
drop function if exists stepwell.retry(uuid[], text, boolean);
